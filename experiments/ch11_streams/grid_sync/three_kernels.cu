// out = in * min(1, c / |in|)        n fp32
//
// bytes   8 n    n read, n written; read a second time after the norm is known, from L2 if it is still there
// flops   3 n
// limit   memory bandwidth. H200: n = 2^26 are 0.54 GB, 0.13 ms at 3.98 TB/s; n = 2^20 a few us
// idea    baseline: the end of a kernel is the global wait. Sums of blocks, the scale from them by one block,
//         the product
#include "clip.cuh"

namespace fathom::lab::grid_sync {
namespace {

__global__ void __launch_bounds__(kThreads) partial_kernel(const float* in, int64_t n, float* partial) {
  const float sum = block_sum(cg::this_thread_block(), own_squares(in, n, walk()));
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) scale_kernel(const float* partial, int count, float* scale) {
  const float sum = sum_of(cg::this_thread_block(), partial, count);
  if (threadIdx.x == 0) *scale = scale_for(sum);
}

__global__ void __launch_bounds__(kThreads)
    apply_kernel(const float* in, float* out, int64_t n, const float* scale) {
  scale_own(in, out, n, walk(), *scale);
}

}  // namespace

void three_kernels(const Clip& p, StreamRef stream) {
  const int64_t n = p.in.size();
  if (n == 0) return;
  const unsigned blocks = blocks_up_to(n, resident_blocks<partial_kernel>());
  partial_kernel<<<blocks, kThreads, 0, stream>>>(p.in.data(), n, p.partial.data());
  FATHOM_LAUNCHED();
  scale_kernel<<<1, kThreads, 0, stream>>>(p.partial.data(), static_cast<int>(blocks), p.scale.data());
  FATHOM_LAUNCHED();
  apply_kernel<<<blocks_up_to(n, resident_blocks<apply_kernel>()), kThreads, 0, stream>>>(
      p.in.data(), p.out.data(), n, p.scale.data());
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::grid_sync
