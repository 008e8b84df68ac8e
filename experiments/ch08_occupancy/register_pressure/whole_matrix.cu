// L L^T = A + 32 I                           a batch of n matrices of order 24, fp32, interleaved
//
// bytes   2400 n   1200 n read + 1200 n written: the lower triangle
// flops   4900 n   2300 FMAs, 300 multiplications, 24 roots
// limit   DRAM bandwidth. H200: n = 262144 moves 629 MB, 0.158 ms at 4 TB/s
// idea    baseline: a thread for each matrix, which it loads, factors as in the textbook, each column
//         reducing all to its right, and stores. 300 elements do not fit into the 255 registers of a
//         thread: the compiler keeps some of them in memory (it spills).
#include "cholesky.h"
#include "cuda/check.h"

namespace fathom::lab::register_pressure {
namespace {

constexpr int kThreads = 128;

// Column k and all to its right. A template, so that every index is known when registers are assigned.
template <int k = 0>
__device__ void factor(float (&l)[kElements]) {
  const float scale = rsqrtf(l[element(k, k)] += kRidge);
#pragma unroll
  for (int i = k; i < kOrder; ++i) l[element(i, k)] *= scale;
#pragma unroll
  for (int j = k + 1; j < kOrder; ++j)
#pragma unroll
    for (int i = j; i < kOrder; ++i) l[element(i, j)] -= l[element(i, k)] * l[element(j, k)];
  if constexpr (k + 1 < kOrder) factor<k + 1>(l);
}

__global__ void __launch_bounds__(kThreads) cholesky_kernel(const float* in, float* out, int n) {
  const int b = blockIdx.x * kThreads + threadIdx.x;
  if (b >= n) return;
  float l[kElements];
#pragma unroll
  for (int e = 0; e < kElements; ++e) l[e] = in[e * n + b];
  factor(l);
#pragma unroll
  for (int e = 0; e < kElements; ++e) out[e * n + b] = l[e];
}

}  // namespace

void whole_matrix(const Cholesky& p, StreamRef stream) {
  const int64_t n = p.in.extent(1);
  if (n == 0) return;
  FATHOM_EXPECT(p.in.size() <= 1 << 30, "32-bit indices");
  cholesky_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(p.in.data(), p.out.data(),
                                                                    static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::register_pressure
