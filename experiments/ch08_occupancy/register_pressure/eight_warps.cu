// L L^T = A + 32 I                           a batch of n matrices of order 24, fp32, interleaved
//
// bytes   2400 n   1200 n read + 1200 n written: the lower triangle
// flops   4900 n   2300 FMAs, 300 multiplications, 24 roots
// limit   DRAM bandwidth. H200: n = 262144 moves 629 MB, 0.158 ms at 4 TB/s
// idea    eight threads share a matrix, every eighth row for each: 48 elements, 24 warps resident in
//         place of 16, half the arithmetic between two barriers
#include "cholesky.h"
#include "cuda/check.h"
#include "rows.cuh"

namespace fathom::lab::register_pressure {
namespace {

constexpr int kWarps   = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kBlocks  = 3;  // on a multiprocessor

__global__ void __launch_bounds__(kThreads, kBlocks) cholesky_kernel(const float* in, float* out, int n) {
  factor<kWarps>(in, out, n);
}

}  // namespace

void eight_warps(const Cholesky& p, StreamRef stream) {
  const int64_t n = p.in.extent(1);
  if (n == 0) return;
  FATHOM_EXPECT(p.in.size() <= 1 << 30, "32-bit indices");
  cholesky_kernel<<<blocks_for(n, 32), kThreads, 0, stream>>>(p.in.data(), p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::register_pressure
