// y = x / sqrt(mean x^2 + epsilon) of each row, a block for each slice of a row        fp32
//
// bytes   8 a number: x read, y written
// flops   3 a number
// limit   DRAM bandwidth. H200: 1320 rows of 50304 are 531 MB at 8 bytes a number, 0.133 ms at 3.98 TB/s
// idea    distributed shared memory: every block reads the sums of the others from their shared memory
#include "slice.cuh"

namespace fathom::lab::cluster_reduction {
namespace {

__global__ void __launch_bounds__(kThreads) cluster_kernel(const Slices s) {
  extern __shared__ __align__(128) float row[];
  __shared__ float of_warp[kThreads / 32];
  __shared__ float of_block;
  const float own = load_and_sum(s, row, of_warp);

  if (threadIdx.x == 0) of_block = own;
  ptx::cluster_barrier_arrive();  // releases of_block
  ptx::cluster_barrier_wait();    // of_block of all blocks of the row is visible
  const int lane       = threadIdx.x % 32;
  const uint32_t local = ptx::shared_address(&of_block);
  const float squares  = warp_reduce_sum(
       lane < s.cluster ? ptx::ld_shared_cluster(ptx::mapa_shared_cluster(local, lane)) : 0.0f);
  ptx::cluster_barrier_arrive_relaxed();  // this block has read of_block of the others

  rms_norm::store_scaled<kThreads>(row, rms_norm::scale_of(squares, s.width), s.out + s.first(), s.count());
  __syncwarp();                 // the barrier wants the warp together, and the loop may have parted it
  ptx::cluster_barrier_wait();  // the others have read of_block; the block, and its memory, may go
}

}  // namespace

void through_dsmem(const SplitRows& p, StreamRef stream) { launch_slices<cluster_kernel>(p, stream); }

}  // namespace fathom::lab::cluster_reduction
