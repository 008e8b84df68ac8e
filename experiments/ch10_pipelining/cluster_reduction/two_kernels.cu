// y = x / sqrt(mean x^2 + epsilon) of each row, a block for each slice of a row        fp32
//
// bytes   12 a number: x read twice, y written; and 8 for each slice
// flops   3 a number
// limit   DRAM bandwidth. H200: 1320 rows of 50304 are 531 MB at 8 bytes a number, 0.133 ms at 3.98 TB/s
// idea    baseline: blocks meet at the end of a kernel. The first kernel leaves the sum of each slice in
//         memory, the second adds the sums of a row and scales; by then the slice itself must be read again
#include "cuda/check.h"
#include "slice.cuh"

namespace fathom::lab::cluster_reduction {
namespace {

__global__ void __launch_bounds__(kThreads) sum_kernel(Slices s) {
  __shared__ float of_warp[kThreads / 32];
  const float own     = rms_norm::sum_squares<kThreads>(s.in + s.first(), s.count());
  const float squares = rms_norm::block_sum<kThreads>(own, of_warp);
  if (threadIdx.x == 0) s.partial[blockIdx.x] = squares;
}

__global__ void __launch_bounds__(kThreads) scale_kernel(Slices s) {
  float squares = 0;
  for (int c = 0; c < s.cluster; ++c) squares += s.partial[s.row() * s.cluster + c];
  rms_norm::store_scaled<kThreads>(s.in + s.first(), rms_norm::scale_of(squares, s.width), s.out + s.first(),
                                   s.count());
}

}  // namespace

void two_kernels(const SplitRows& p, StreamRef stream) {
  FATHOM_EXPECT(p.rows() * p.cluster <= INT32_MAX, "the kernel counts blocks in 32 bits");
  if (p.rows() == 0) return;
  const auto grid = static_cast<unsigned>(p.rows() * p.cluster);
  sum_kernel<<<grid, kThreads, 0, stream>>>(Slices(p));
  FATHOM_LAUNCHED();
  scale_kernel<<<grid, kThreads, 0, stream>>>(Slices(p));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::cluster_reduction
