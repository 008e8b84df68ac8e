// out = f(f(...f(in))), f(x) = a x + b       n elements, fp32, f applied `fmas` times
//
// bytes   8 n
// flops   2 fmas n  intensity fmas / 4 a byte; the ridge of an H200 is near 17, fmas = 67
// limit   DRAM bandwidth left of the ridge, FMA units right of it
// idea    baseline: an element a thread. 64 warps of one chain each hide an FMA's four cycles, not the loop
//         around it
#include "cuda/check.h"
#include "sweep.h"

namespace fathom::lab::roofline_sweep {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) plain_kernel(const float* in, float* out, int n, int fmas) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  float x = in[i];
  for (int k = 0; k < fmas; ++k) x = fmaf(x, kFactor, kSummand);
  out[i] = x;
}

}  // namespace

void plain(const Sweep& p, StreamRef stream) {
  const int64_t n = p.in.size();
  if (n == 0) return;
  FATHOM_EXPECT(n < (int64_t{1} << 30), "elements are counted in 31 bits, a block beyond the end too");
  plain_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(p.in.data(), p.out.data(),
                                                                 static_cast<int>(n), p.fmas);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::roofline_sweep
