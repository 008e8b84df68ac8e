// out = in * min(1, c / |in|)        n fp32
//
// bytes   8 n    n read, n written; read a second time after the norm is known, from L2 if it is still there
// flops   3 n
// limit   memory bandwidth. H200: n = 2^26 are 0.54 GB, 0.13 ms at 3.98 TB/s; n = 2^20 a few us
// idea    every block of the second kernel adds up the sums itself: the work of the small kernel many times,
//         but one kernel fewer
#include "clip.cuh"

namespace fathom::lab::grid_sync {
namespace {

__global__ void __launch_bounds__(kThreads) partial_kernel(const float* in, int64_t n, float* partial) {
  const float sum = block_sum(cg::this_thread_block(), own_squares(in, n, walk()));
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    apply_kernel(const float* in, float* out, int64_t n, const float* partial, int count) {
  scale_own(in, out, n, walk(), scale_for(sum_of(cg::this_thread_block(), partial, count)));
}

}  // namespace

void two_kernels(const Clip& p, StreamRef stream) {
  const int64_t n = p.in.size();
  if (n == 0) return;
  const unsigned blocks = blocks_up_to(n, resident_blocks<partial_kernel>());
  partial_kernel<<<blocks, kThreads, 0, stream>>>(p.in.data(), n, p.partial.data());
  FATHOM_LAUNCHED();
  apply_kernel<<<blocks_up_to(n, resident_blocks<apply_kernel>()), kThreads, 0, stream>>>(
      p.in.data(), p.out.data(), n, p.partial.data(), static_cast<int>(blocks));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::grid_sync
