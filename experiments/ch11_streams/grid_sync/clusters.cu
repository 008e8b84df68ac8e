// out = in * min(1, c / |in|)        n fp32
//
// bytes   8 n    n read, n written; read a second time after the norm is known, from L2 if it is still there
// flops   3 n
// limit   memory bandwidth. H200: n = 2^26 are 0.54 GB, 0.13 ms at 3.98 TB/s; n = 2^20 a few us
// idea    the blocks of a cluster first add their sums in distributed shared memory, so that the grid
//         exchanges an eighth of them
#include "clip.cuh"

namespace fathom::lab::grid_sync {
namespace {

constexpr int kCluster = 8;

__global__ void __launch_bounds__(kThreads)
    clip_kernel(const float* in, float* out, int64_t n, float* partial) {
  __shared__ float of_block;
  const cg::grid_group grid       = cg::this_grid();
  const cg::cluster_group cluster = cg::this_cluster();
  const cg::thread_block block    = cg::this_thread_block();

  const float sum = block_sum(block, own_squares(in, n, walk()));
  if (block.thread_rank() == 0) of_block = sum;
  cluster.sync();  // of_block of all blocks of the cluster is there
  if (cluster.block_rank() == 0 && block.thread_rank() == 0) {
    float of_cluster = 0;
    for (unsigned rank = 0; rank < kCluster; ++rank) of_cluster += *cluster.map_shared_rank(&of_block, rank);
    partial[blockIdx.x / kCluster] = of_cluster;
  }
  // The sums of all clusters are in memory. And since the first block has read of_block of the others before
  // it comes here, they may go.
  grid.sync();
  scale_own(in, out, n, walk(), scale_for(sum_of(block, partial, static_cast<int>(gridDim.x) / kCluster)));
}

// Blocks in clusters that the GPU holds at once: fewer than without where a processing cluster's
// multiprocessors are no multiple of 8.
int64_t resident() {
  static PerDevice<int> blocks;
  return blocks.get([] {
    cudaLaunchAttribute cluster     = {};
    cluster.id                      = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x        = kCluster;
    cluster.val.clusterDim.y        = 1;
    cluster.val.clusterDim.z        = 1;
    const cudaLaunchConfig_t config = {
        .gridDim = dim3(kCluster), .blockDim = dim3(kThreads), .attrs = &cluster, .numAttrs = 1};
    int count = 0;
    FATHOM_CUDA(cudaOccupancyMaxActiveClusters(&count, clip_kernel, &config));
    return count * kCluster;
  });
}

}  // namespace

void clusters(const Clip& p, StreamRef stream) {
  const int64_t n = p.in.size();
  if (n == 0) return;
  const int64_t most    = std::min(resident(), kMaxBlocks) / kCluster;
  const unsigned enough = blocks_for(blocks_up_to(n, most * kCluster), kCluster);
  launch_cooperative(clip_kernel, kCluster * enough, kThreads, 0, kCluster, stream, p.in.data(), p.out.data(),
                     n, p.partial.data());
}

}  // namespace fathom::lab::grid_sync
