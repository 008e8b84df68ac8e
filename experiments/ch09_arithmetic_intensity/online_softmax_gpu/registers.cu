// out = softmax of each row                  R x C, bf16, computed in fp32
//
// bytes   4 R C    and 4 R C move
// flops   6 R C
// limit   DRAM bandwidth. H200: 8192 x 8192 moves 268 MB, 67 us at the 3.98 TB/s of a copy
// idea    a thread holds its share of the row and takes exponentials against its own maximum at once. When
//         the row's maximum and sum are known, behind the only barrier, one factor corrects and divides:
//         exp(x - max) / sum = exp(x - own max) * (exp(own max - max) / sum)
#include "cuda/check.h"
#include "experiments/rows.cuh"
#include "online.cuh"
#include "softmax.h"

namespace fathom::lab::online_softmax_gpu {
namespace {

using namespace rows;

// Resident threads of a multiprocessor: at most 64 registers each.
constexpr int kResident = 1024;

// kThreads threads hold a row, kVectors * 8 elements each; a block has kRows rows.
template <int kThreads, int kVectors, int kRows, int kBlock = (kThreads * kRows)>
__global__ void __launch_bounds__(kBlock, kResident / kBlock)
    softmax_kernel(View<const bf16, 2> in, View<bf16, 2> out) {
  static_assert(kRows == 1 || kThreads == 32, "rows of one block share no barrier");
  __shared__ Partial<kThreads> of_largest, of_sum;
  const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.y;
  if (kRows > 1 && row >= in.extent(0)) return;
  // Vectors of the row from this thread's first one on.
  const int vectors = static_cast<int>(in.extent(1)) / kEight - static_cast<int>(threadIdx.x);
  const uint4* from = eights(in.data() + row * in.stride(0)) + threadIdx.x;
  uint4* to         = eights(out.data() + row * out.stride(0)) + threadIdx.x;

  constexpr uint32_t kNothing = 0xff80ff80;  // twice minus infinity: no maximum, and 0 as an exponential
  uint4 packed[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    packed[k] = k * kThreads < vectors ? load_once(from + k * kThreads)
                                       : uint4{kNothing, kNothing, kNothing, kNothing};
  Elements<kEight> v[kVectors];
  Normalizer own;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    v[k]          = unpack(packed[k]);
    float highest = v[k].at[0];
    for (int i = 1; i < kEight; ++i) highest = fmaxf(highest, v[k].at[i]);
    own.largest = fmaxf(own.largest, highest);
  }
  const float shift = own.largest * kLog2e;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    for (float& x : v[k].at) x = exponential(x, shift);
    float of_vector = v[k].at[0];
    for (int i = 1; i < kEight; ++i) of_vector += v[k].at[i];
    own.sum += of_vector;
  }
  const Normalizer n = online_softmax_gpu::over_row(own, of_largest, of_sum);
  const float by     = __fdividef(power_of_two((own.largest - n.largest) * kLog2e), n.sum);

#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    for (float& x : v[k].at) x *= by;
    if (k * kThreads < vectors) to[k * kThreads] = pack(v[k]);
  }
}

template <int kThreads, int kVectors, int kRows = 1>
void launch(const Softmax& p, StreamRef stream) {
  softmax_kernel<kThreads, kVectors, kRows>
      <<<blocks_for(p.in.extent(0), kRows), dim3(kThreads, kRows), 0, stream>>>(p.in, p.out);
  FATHOM_LAUNCHED();
}

}  // namespace

void registers(const Softmax& p, StreamRef stream) {
  const int64_t cols = p.in.extent(1);
  if (p.in.size() == 0) return;
  FATHOM_EXPECT(p.in.extent(0) < (int64_t{1} << 31), "a block for each row, counted in 31 bits");
  if (cols > 32768 || !in_eights(p.in) || !in_eights(p.out)) return softmax_in_two_walks(p.in, p.out, stream);
  if (cols <= 1024) return launch<32, 4, 8>(p, stream);
  if (cols <= 4096) return launch<128, 4>(p, stream);
  if (cols <= 8192) return launch<256, 4>(p, stream);
  if (cols <= 16384) return launch<512, 4>(p, stream);
  launch<1024, 4>(p, stream);
}

}  // namespace fathom::lab::online_softmax_gpu
