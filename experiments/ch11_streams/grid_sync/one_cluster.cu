// out = in * min(1, c / |in|)        n fp32
//
// bytes   8 n    n read, n written; read a second time when the norm is known, from L1 or L2
// flops   3 n
// limit   memory bandwidth. H200: n = 2^16 are 0.5 MB, far below a launch's time
// idea    a small array needs no grid: the 8 blocks of one cluster wait for each other in hardware, and read
//         each other's sums from shared memory. But they are 8 multiprocessors of 132
#include "clip.cuh"
#include "cuda/launch.cuh"

namespace fathom::lab::grid_sync {
namespace {

constexpr int kBlocks = 8;  // of the cluster: the most that every GPU with clusters allows

__global__ void __launch_bounds__(kThreads) clip_kernel(const float* in, float* out, int64_t n) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  __shared__ float of_block;
  const cg::cluster_group cluster = cg::this_cluster();
  const cg::thread_block block    = cg::this_thread_block();
  const Walk own                  = walk(kBlocks);
  const float sum                 = block_sum(block, own_squares(in, n, own));
  if (block.thread_rank() == 0) of_block = sum;
  cluster.sync();  // of_block of all blocks is there
  const auto blocks = cg::tiled_partition<kBlocks>(block);
  const float squares =
      tile_sum(blocks, *cluster.map_shared_rank(&of_block, static_cast<int>(blocks.thread_rank())));
  cluster.sync();  // all have read of_block of the others: a block, and its memory, may go
  scale_own(in, out, n, own, scale_for(squares));
#else
  __trap();  // there are no clusters
#endif
}

}  // namespace

void one_cluster(const Clip& p, StreamRef stream) {
  if (p.in.size() == 0) return;
  launch_in_clusters(clip_kernel, dim3(kBlocks), dim3(kThreads), 0, kBlocks, stream, p.in.data(),
                     p.out.data(), p.in.size());
}

}  // namespace fathom::lab::grid_sync
