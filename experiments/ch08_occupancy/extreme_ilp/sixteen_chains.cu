// out(i) = b(i) (1 + a(i) + ... + a(i)^8192)              n recurrences x <- a x + b, fp32
//
// bytes   12 n     8 n read + 4 n written
// flops   16384 n  8192 FMAs in a row for each
// limit   FMA peak: one instruction a cycle from each of the four schedulers of a multiprocessor
// idea    sixteen: 48 registers of state. Nothing is left to gain.
#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "recurrence.h"

namespace fathom::lab::extreme_ilp {
namespace {

constexpr int kThreads = 128;  // a warp for each scheduler
constexpr int kBlocks  = 1;    // on each multiprocessor
constexpr int kChains  = 16;   // of a thread, side by side

__global__ void __launch_bounds__(kThreads)
    recurrence_kernel(const float* a, const float* b, float* out, int n) {
  const int threads = gridDim.x * kThreads;
  for (int first = blockIdx.x * kThreads + threadIdx.x; first < n; first += kChains * threads) {
    float as[kChains], bs[kChains], x[kChains];
#pragma unroll
    for (int q = 0; q < kChains; ++q) {
      const int i = min(first + q * threads, n - 1);
      as[q]       = a[i];
      bs[q]       = b[i];
      x[q]        = bs[q];
    }
#pragma unroll 16
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int q = 0; q < kChains; ++q) x[q] = fmaf(as[q], x[q], bs[q]);
#pragma unroll
    for (int q = 0; q < kChains; ++q)
      if (first + q * threads < n) out[first + q * threads] = x[q];
  }
}

}  // namespace

void sixteen_chains(const Recurrence& p, StreamRef stream) {
  const int64_t n = p.out.size();
  if (n == 0) return;
  FATHOM_EXPECT(n <= 1 << 30, "32-bit indices run to twice the number of elements");
  const int blocks = kBlocks * multiprocessors();
  recurrence_kernel<<<blocks, kThreads, 0, stream>>>(p.a.data(), p.b.data(), p.out.data(),
                                                     static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::extreme_ilp
