// out(i) = mean of P_kind(i) over 0 .. load(i)          n samples of 4 materials, fp32
//
// flops   1024 n    32 nodes x (a polynomial of degree 15, its argument, the sum)
// bytes   9 n
// limit   FMA peak. A node is 15 FMAs, a product and two sums: 32 flops in 18 instructions, 89 % of the peak
// idea    baseline: one sample a thread, and a switch. Nearly every warp has all four materials, so it
//         executes all four branches, each with three quarters of its lanes inactive
#include "cuda/check.h"
#include "material.cuh"

namespace fathom::lab::divergence {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    response_kernel(const float* load, const uint8_t* kind, float* out, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < n) out[i] = response(kind[i], load[i]);
}

}  // namespace

void branch(const Responses& p, StreamRef stream) {
  const int64_t n = p.out.extent(0);
  FATHOM_EXPECT(n <= 1 << 30, "samples are counted in 32 bits");
  if (n == 0) return;
  response_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(p.load.data(), p.kind.data(),
                                                                    p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::divergence
