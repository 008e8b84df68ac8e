// out = in * min(1, c / |in|)        n fp32
//
// bytes   8 n    n read, n written; read a second time when the norm is known, from L2 if it is still there
// flops   3 n
// limit   memory bandwidth. H200: n = 2^26 are 0.54 GB, 0.13 ms at 3.98 TB/s; n = 2^16 a few launches
// idea    none yet: the end of the first kernel is the wait of all blocks for all. Every block of the second
//         adds up the sums of the first
#include "clip.cuh"

namespace fathom::lab::grid_sync {
namespace {

__global__ void __launch_bounds__(kThreads) sum_kernel(const float* in, int64_t n, float* partial) {
  const cg::thread_block block = cg::this_thread_block();
  const float sum              = block_sum(block, own_squares(in, n, walk(gridDim.x)));
  if (block.thread_rank() == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel(const float* in, float* out, int64_t n, const float* partial, int count) {
  const float squares = sum_of(cg::this_thread_block(), partial, count);
  scale_own(in, out, n, walk(gridDim.x), scale_for(squares));
}

}  // namespace

void two_kernels(const Clip& p, StreamRef stream) {
  const int64_t n = p.in.size();
  if (n == 0) return;
  const int sums = blocks_of<sum_kernel>(n);
  sum_kernel<<<sums, kThreads, 0, stream>>>(p.in.data(), n, p.partial.data());
  FATHOM_LAUNCHED();
  scale_kernel<<<blocks_of<scale_kernel>(n), kThreads, 0, stream>>>(p.in.data(), p.out.data(), n,
                                                                    p.partial.data(), sums);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::grid_sync
