// out = in * min(1, c / |in|)        n fp32
//
// bytes   8 n    n read, n written; read a second time when the norm is known, from L2 if it is still there
// flops   3 n
// limit   memory bandwidth. H200: n = 2^26 are 0.54 GB, 0.13 ms at 3.98 TB/s; n = 2^16 a few launches
// idea    no block waits: each draws a ticket when its sum is in memory, and the one with the last
//         ticket adds up all sums. The second kernel reads one number instead of as many as there are
//         blocks
#include "clip.cuh"

namespace fathom::lab::grid_sync {
namespace {

__device__ unsigned next_ticket = 0;  // the last block of a grid sets it back

__global__ void __launch_bounds__(kThreads)
    sum_kernel(const float* in, int64_t n, float* partial, float* scale) {
  __shared__ bool is_last;
  const cg::thread_block block = cg::this_thread_block();
  const float own              = block_sum(block, own_squares(in, n, walk(gridDim.x)));
  if (block.thread_rank() == 0) {
    partial[blockIdx.x] = own;
    __threadfence();                                                    // the sum before the ticket
    is_last = atomicInc(&next_ticket, gridDim.x - 1) == gridDim.x - 1;  // wraps to 0 by itself
    __threadfence();  // the ticket before the sums of the others
  }
  block.sync();  // is_last is known, and what its reader has seen, all see
  if (!is_last) return;
  const float squares = sum_of(block, partial, static_cast<int>(gridDim.x));
  if (block.thread_rank() == 0) *scale = scale_for(squares);
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel(const float* in, float* out, int64_t n, const float* scale) {
  scale_own(in, out, n, walk(gridDim.x), *scale);
}

}  // namespace

void last_block(const Clip& p, StreamRef stream) {
  const int64_t n = p.in.size();
  if (n == 0) return;
  sum_kernel<<<blocks_of<sum_kernel>(n), kThreads, 0, stream>>>(p.in.data(), n, p.partial.data(),
                                                                p.scale.data());
  FATHOM_LAUNCHED();
  scale_kernel<<<blocks_of<scale_kernel>(n), kThreads, 0, stream>>>(p.in.data(), p.out.data(), n,
                                                                    p.scale.data());
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::grid_sync
