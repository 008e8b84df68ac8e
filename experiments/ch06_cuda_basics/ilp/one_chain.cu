// r <- r x + y, 4096 times                       n accounts, fp32
//
// bytes   12 n
// flops   8192 n
// limit   FMA peak: a scheduler can start an FMA of one warp in every cycle; the result comes 4 cycles later
// idea    baseline: an account for each thread. One warp a scheduler has one chain to offer, and in 3 of 4
//         cycles nothing starts
#include "balances.h"
#include "low_occupancy.cuh"

namespace fathom::lab::ilp {
namespace {

constexpr int kChains = 1;

__global__ void __launch_bounds__(kThreads)
    balance_kernel(const float* growth, const float* deposit, float* out, int n) {
  const int threads = gridDim.x * kThreads;
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += kChains * threads) {
    float x[kChains], y[kChains], r[kChains];
    for (int c = 0; c < kChains; ++c) {
      const int account = min(i + c * threads, n - 1);  // the last ones may be computed twice
      x[c]              = growth[account];
      y[c]              = deposit[account];
      r[c]              = 0;
    }
#pragma unroll 64
    for (int period = 0; period < kPeriods; ++period)
      for (int c = 0; c < kChains; ++c) r[c] = fmaf(r[c], x[c], y[c]);
    for (int c = 0; c < kChains; ++c)
      if (i + c * threads < n) out[i + c * threads] = r[c];
  }
}

}  // namespace

void one_chain(const Balances& p, StreamRef stream) {
  const int64_t n = p.out.extent(0);
  FATHOM_EXPECT(n <= 1 << 30, "accounts are counted in 32 bits");
  if (n == 0) return;
  balance_kernel<<<one_block_per_multiprocessor(), kThreads, 0, stream>>>(p.growth.data(), p.deposit.data(),
                                                                          p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::ilp
