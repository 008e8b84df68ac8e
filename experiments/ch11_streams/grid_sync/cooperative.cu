// out = in * min(1, c / |in|)        n fp32
//
// bytes   8 n    n read, n written; read a second time when the norm is known, from L2 if it is still there
// flops   3 n
// limit   memory bandwidth. H200: n = 2^26 are 0.54 GB, 0.13 ms at 3.98 TB/s; n = 2^16 a few launches
// idea    one kernel: a cooperative launch keeps all its blocks resident, so that they can wait for
//         each other in the middle
#include "clip.cuh"

namespace fathom::lab::grid_sync {
namespace {

__global__ void __launch_bounds__(kThreads)
    clip_kernel(const float* in, float* out, int64_t n, float* partial) {
  const cg::grid_group grid    = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  const Walk own               = walk(gridDim.x);
  const float sum              = block_sum(block, own_squares(in, n, own));
  if (block.thread_rank() == 0) partial[blockIdx.x] = sum;
  grid.sync();  // the sums of all blocks are in memory
  scale_own(in, out, n, own, scale_for(sum_of(block, partial, static_cast<int>(gridDim.x))));
}

}  // namespace

void cooperative(const Clip& p, StreamRef stream) {
  const int64_t n = p.in.size();
  if (n == 0) return;
  launch_cooperative(clip_kernel, dim3(blocks_of<clip_kernel>(n)), dim3(kThreads), 0, stream, p.in.data(),
                     p.out.data(), n, p.partial.data());
}

}  // namespace fathom::lab::grid_sync
