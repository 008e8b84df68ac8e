// part = w_0 part + w_1 more,  w_i = exp(lse_i) / (exp(lse_0) + exp(lse_1))      bf16 [rows, heads, 128]
//
// bytes   6 for each number, and 8 for each row of a head; half of them hit L2 where the second result has
//         just been written
// flops   3 for each number
// limit   DRAM: 32 MiB, a quarter of 65536 rows of 8 heads, three times over are 0.03 ms of 3.3 TB/s
// idea    a thread has eight numbers: one load and one store of 16 bytes each
#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "turns.h"

namespace fathom::lab::ring_attention_gpu {
namespace {

constexpr int kThreads = 256, kNumbers = 8, kOfHead = kHeadDim / kNumbers;

__device__ uint32_t weighted(uint32_t a, uint32_t b, float of_a, float of_b) {
  const auto low  = [](uint32_t pair) { return __uint_as_float(pair << 16); };
  const auto high = [](uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); };
  return pack_bf16x2(of_a * low(a) + of_b * low(b), of_a * high(a) + of_b * high(b));
}

__global__ void __launch_bounds__(kThreads)
    merge_kernel(uint4* part, View<const float, 2> lse, const uint4* more, View<const float, 2> more_lse,
                 int64_t vectors) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= vectors) return;
  const int64_t row = i / kOfHead / kHeads, head = i / kOfHead % kHeads;
  // Every row sees a key in both, so both are finite.
  const float of_b = 1 / (1 + __expf(lse(head, row) - more_lse(head, row))), of_a = 1 - of_b;
  const uint4 a = part[i], b = more[i];
  part[i] = {weighted(a.x, b.x, of_a, of_b), weighted(a.y, b.y, of_a, of_b), weighted(a.z, b.z, of_a, of_b),
             weighted(a.w, b.w, of_a, of_b)};
}

}  // namespace

void merge(Rows part, View<const float, 2> lse, ConstRows more, View<const float, 2> more_lse,
           StreamRef stream) {
  FATHOM_EXPECT(more.size() == part.size(), "two results of the same rows");
  const int64_t vectors = part.size() / kNumbers;
  if (vectors == 0) return;
  merge_kernel<<<blocks_for(vectors, kThreads), kThreads, 0, stream>>>(
      reinterpret_cast<uint4*>(part.data()), lse, reinterpret_cast<const uint4*>(more.data()), more_lse,
      vectors);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::ring_attention_gpu
