// y = x / sqrt(mean x^2 + epsilon) of each row, a block for each slice of a row        fp32
//
// bytes   8 a number: x read, y written
// flops   3 a number
// limit   DRAM bandwidth. H200: 1320 rows of 50304 are 531 MB at 8 bytes a number, 0.133 ms at 3.98 TB/s
// idea    block 0 of the cluster reads the sums of the others, adds them, and stores the result in each
//         block's shared memory: half as many messages, but two trips, one after the other
#include "slice.cuh"

namespace fathom::lab::cluster_reduction {
namespace {

__global__ void __launch_bounds__(kThreads) cluster_kernel(const Slices s) {
  extern __shared__ __align__(128) float row[];
  __shared__ float of_warp[kThreads / 32];
  __shared__ float of_block, of_row;
  const float own = load_and_sum(s, row, of_warp);

  if (threadIdx.x == 0) of_block = own;
  ptx::cluster_barrier_arrive();  // releases of_block
  ptx::cluster_barrier_wait();    // block 0 sees of_block of all blocks
  if (s.rank() == 0 && threadIdx.x < 32) {
    const int lane    = threadIdx.x;
    const auto remote = [&](float* number) {
      return ptx::mapa_shared_cluster(ptx::shared_address(number), lane);
    };
    const float squares =
        warp_reduce_sum(lane < s.cluster ? ptx::ld_shared_cluster(remote(&of_block)) : 0.0f);
    if (lane < s.cluster) ptx::st_shared_cluster(remote(&of_row), squares);
    __syncwarp();  // the barrier below wants the warp together
  }
  ptx::cluster_barrier_arrive();  // releases of_row
  ptx::cluster_barrier_wait();    // of_row has arrived; nobody accesses another block's memory from here on

  rms_norm::store_scaled<kThreads>(row, rms_norm::scale_of(of_row, s.width), s.out + s.first(), s.count());
}

}  // namespace

void dsmem_broadcast(const SplitRows& p, StreamRef stream) { launch_slices<cluster_kernel>(p, stream); }

}  // namespace fathom::lab::cluster_reduction
