// y(p, i) = x(p, i) + c(p, i) * sum over j of x(p, j)        pages of 1024 fp32
//
// bytes   12 KiB a page: 8 read + 4 written
// flops   3072 a page
// limit   the link, which x crosses to the GPU and y back: 55 GB/s each way. H200: 32768 pages are 128 MiB an
//         array, 2.4 ms each way; the pass itself takes 0.1 ms where all is in the GPU's memory
// idea    a block for each page, 16 bytes a thread. The same for all variants: where the addresses lead is
//         their affair
#include "cuda/check.h"
#include "cuda/warp_reduce.cuh"
#include "pages.h"

namespace fathom::lab::unified_memory {
namespace {

constexpr int kThreads = kWords / 4, kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) pass_kernel(const float4* x, const float4* c, float4* y) {
  __shared__ float of_warp[kWarps];
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const float4 a = x[i], b = c[i];
  const float sum = warp_reduce_sum(a.x + a.y + a.z + a.w);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();  // the sums of all warps are there before anyone adds them
  float all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all += of_warp[w];
  y[i] = make_float4(a.x + b.x * all, a.y + b.y * all, a.z + b.z * all, a.w + b.w * all);
}

}  // namespace

void pass(const float* x, const float* c, float* y, int64_t pages, StreamRef stream) {
  if (pages == 0) return;
  FATHOM_EXPECT(pages <= INT32_MAX, "a grid has 2^31 - 1 blocks");
  pass_kernel<<<static_cast<unsigned>(pages), kThreads, 0, stream>>>(
      reinterpret_cast<const float4*>(x), reinterpret_cast<const float4*>(c), reinterpret_cast<float4*>(y));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::unified_memory
