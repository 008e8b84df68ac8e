// y = x / sqrt(mean x^2 + epsilon) of each row, a block for each slice of a row        fp32
//
// bytes   8 a number: x read, y written; the sums stay in L2
// flops   3 a number
// limit   DRAM bandwidth. H200: 1320 rows of 50304 are 531 MB at 8 bytes a number, 0.133 ms at 3.98 TB/s
// idea    a cluster without distributed shared memory: its blocks run at the same time, so the slice can stay
//         in shared memory while they exchange their sums through global memory
#include "slice.cuh"

namespace fathom::lab::cluster_reduction {
namespace {

__global__ void __launch_bounds__(kThreads) cluster_kernel(const Slices s) {
  extern __shared__ __align__(128) float row[];
  __shared__ float of_warp[kThreads / 32];
  const float own = load_and_sum(s, row, of_warp);

  if (threadIdx.x == 0) s.partial[blockIdx.x] = own;
  ptx::cluster_barrier_arrive();  // releases the sum
  ptx::cluster_barrier_wait();    // the sums of all blocks of the row are visible
  float squares = 0;
  for (int c = 0; c < s.cluster; ++c) squares += s.partial[s.row() * s.cluster + c];

  rms_norm::store_scaled<kThreads>(row, rms_norm::scale_of(squares, s.width), s.out + s.first(), s.count());
}

}  // namespace

void through_global(const SplitRows& p, StreamRef stream) { launch_slices<cluster_kernel>(p, stream); }

}  // namespace fathom::lab::cluster_reduction
