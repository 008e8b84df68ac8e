// L L^T = A + 32 I                           a batch of n matrices of order 24, fp32, interleaved
//
// bytes   2400 n   1200 n read + 1200 n written: the lower triangle
// flops   4900 n   2300 FMAs, 300 multiplications, 24 roots
// limit   DRAM bandwidth. H200: n = 262144 moves 629 MB, 0.158 ms at 4 TB/s
// idea    four threads share a matrix, every fourth row for each: 84 elements in place of 300, and enough
//         threads to have loads and arithmetic of different blocks overlap. Columns pass through shared
//         memory.
#include "cholesky.h"
#include "cuda/check.h"
#include "rows.cuh"

namespace fathom::lab::register_pressure {
namespace {

constexpr int kWarps   = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kBlocks  = 4;  // on a multiprocessor

__global__ void __launch_bounds__(kThreads, kBlocks) cholesky_kernel(const float* in, float* out, int n) {
  factor<kWarps>(in, out, n);
}

}  // namespace

void four_warps(const Cholesky& p, StreamRef stream) {
  const int64_t n = p.in.extent(1);
  if (n == 0) return;
  FATHOM_EXPECT(p.in.size() <= 1 << 30, "32-bit indices");
  cholesky_kernel<<<blocks_for(n, 32), kThreads, 0, stream>>>(p.in.data(), p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::register_pressure
