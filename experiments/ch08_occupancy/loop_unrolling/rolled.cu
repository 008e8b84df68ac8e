// out(i) = sum over k of a(i, k) x(k)                    m rows of n, fp32
//
// bytes   4 m n of a, each once; x stays in L1
// flops   2 m n
// limit   DRAM bandwidth, read only. H200: 32768 x 4096 is 537 MB, 0.118 ms at 4.55 TB/s
// idea    what the compiler's unrolling is worth: it is forbidden. An iteration loads, waits for what it
//         loaded, and adds; a thread has one element of its row in flight
#include "cuda/check.h"
#include "dot_rows.h"
#include "warp_sum.cuh"

namespace fathom::lab::loop_unrolling {
namespace {

constexpr int kThreads = 256;  // eight warps, a row for each

__global__ void __launch_bounds__(kThreads)
    dot_kernel(const float* a, const float* x, float* out, int m, int n) {
  const int row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= m) return;
  const float* of_row = a + static_cast<int64_t>(row) * n;

  float sum = 0;
#pragma unroll 1
  for (int k = lane; k < n; k += 32) sum += of_row[k] * x[k];

  sum = warp_sum(sum);
  if (lane == 0) out[row] = sum;
}

}  // namespace

void rolled(const DotRows& p, StreamRef stream) {
  const int64_t m = p.a.extent(0), n = p.a.extent(1);
  if (m == 0) return;
  FATHOM_EXPECT(m <= 1 << 30 && n <= 1 << 30, "32-bit indices");
  dot_kernel<<<blocks_for(m, kThreads / 32), kThreads, 0, stream>>>(p.a.data(), p.x.data(), p.out.data(),
                                                                    static_cast<int>(m), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::loop_unrolling
