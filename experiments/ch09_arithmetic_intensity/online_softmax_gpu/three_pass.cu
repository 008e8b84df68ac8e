// out = softmax of each row                  R x C, bf16, computed in fp32
//
// bytes   4 R C    and 4 R C move, if a row stays in L1 or L2 for the second and third walk
// flops   8 R C    every exponential twice
// limit   DRAM bandwidth
// idea    the definition, one block a row: maximum, sum, result. Two barriers cut it into parts that each
//         wait for memory
#include "cuda/check.h"
#include "experiments/rows.cuh"
#include "exponential.cuh"
#include "softmax.h"

namespace fathom::lab::online_softmax_gpu {
namespace {

using namespace rows;

constexpr int kThreads = 256;

template <int kWidth>
__global__ void __launch_bounds__(kThreads) three_pass_kernel(View<const bf16, 2> in, View<bf16, 2> out) {
  __shared__ Partial<kThreads> of_largest, of_sum;
  const int cols   = static_cast<int>(in.extent(1));
  const bf16* from = in.data() + blockIdx.x * in.stride(0);
  bf16* to         = out.data() + blockIdx.x * out.stride(0);
  float largest    = low(0xff80);  // minus infinity
#pragma unroll 4
  for (int c = threadIdx.x * kWidth; c < cols; c += kThreads * kWidth)
    for (const float x : load<kWidth>(from + c).at) largest = fmaxf(largest, x);
  const float shift = over_row(largest, Larger{}, of_largest) * kLog2e;

  float sum = 0;
#pragma unroll 4
  for (int c = threadIdx.x * kWidth; c < cols; c += kThreads * kWidth)
    for (const float x : load<kWidth>(from + c).at) sum += exponential(x, shift);
  const float by = __fdividef(1.0f, over_row(sum, Plus{}, of_sum));

#pragma unroll 4
  for (int c = threadIdx.x * kWidth; c < cols; c += kThreads * kWidth) {
    Elements<kWidth> v = load<kWidth>(from + c);
    for (float& x : v.at) x = exponential(x, shift) * by;
    store<kWidth>(to + c, v);
  }
}

template <int kWidth>
void launch(const Softmax& p, StreamRef stream) {
  three_pass_kernel<kWidth><<<static_cast<unsigned>(p.in.extent(0)), kThreads, 0, stream>>>(p.in, p.out);
  FATHOM_LAUNCHED();
}

}  // namespace

void three_pass(const Softmax& p, StreamRef stream) {
  if (p.in.size() == 0) return;
  FATHOM_EXPECT(p.in.extent(0) < (int64_t{1} << 31) && p.in.extent(1) < (int64_t{1} << 30),
                "rows are counted, and elements of a row addressed, in 31 bits");
  in_eights(p.in) && in_eights(p.out) ? launch<kEight>(p, stream) : launch<1>(p, stream);
}

}  // namespace fathom::lab::online_softmax_gpu
