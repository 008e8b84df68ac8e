// L L^T = A + 32 I                           a batch of n matrices of order 24, fp32, interleaved
//
// bytes   2400 n   1200 n read + 1200 n written: the lower triangle
// flops   4900 n   2300 FMAs, 300 multiplications, 24 roots
// limit   DRAM bandwidth. H200: n = 262144 moves 629 MB, 0.158 ms at 4 TB/s
// idea    the same operations in another order (left-looking): each column is reduced by all columns to its
//         left, then stored at once. Only the rows from here down of the columns to the left are needed
//         again: at most 12 x 12 elements are live, and there is room to fetch four columns ahead.
#include "cholesky.h"
#include "cuda/check.h"

namespace fathom::lab::register_pressure {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead   = 4;  // columns in flight

template <int k>
__device__ void load(const float* in, int n, float (&l)[kElements]) {
  if constexpr (k < kOrder) {
#pragma unroll
    for (int i = k; i < kOrder; ++i) l[element(i, k)] = in[element(i, k) * n];
  }
}

// Column k, and all to its right. A template, so that every index is known when registers are assigned.
template <int k = 0>
__device__ void factor(const float* in, float* out, int n, float (&l)[kElements]) {
  load<k + kAhead>(in, n, l);
#pragma unroll
  for (int p = 0; p < k; ++p)
#pragma unroll
    for (int i = k; i < kOrder; ++i) l[element(i, k)] -= l[element(i, p)] * l[element(k, p)];
  const float scale = rsqrtf(l[element(k, k)] += kRidge);
#pragma unroll
  for (int i = k; i < kOrder; ++i) out[element(i, k) * n] = l[element(i, k)] *= scale;
  if constexpr (k + 1 < kOrder) factor<k + 1>(in, out, n, l);
}

__global__ void __launch_bounds__(kThreads) cholesky_kernel(const float* in, float* out, int n) {
  const int b = blockIdx.x * kThreads + threadIdx.x;
  if (b >= n) return;
  float l[kElements];
  load<0>(in + b, n, l);
  load<1>(in + b, n, l);
  load<2>(in + b, n, l);
  load<3>(in + b, n, l);
  factor(in + b, out + b, n, l);
}

}  // namespace

void by_columns(const Cholesky& p, StreamRef stream) {
  const int64_t n = p.in.extent(1);
  if (n == 0) return;
  FATHOM_EXPECT(p.in.size() <= 1 << 30, "32-bit indices");
  cholesky_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(p.in.data(), p.out.data(),
                                                                    static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::register_pressure
