// out(v) = number of i with in(i) = v                   n bytes, 256 bins of uint32
//
// bytes   n, read once
// flops   none; n increments
// limit   DRAM bandwidth, read only. H200: n = 268435456 takes 0.059 ms at 4.55 TB/s
// idea    baseline: a histogram for each block, in shared memory; one atomic addition in L2 for each of
//         its bins when the block is done
#include "experiments/ch08_occupancy/resident_blocks.cuh"
#include "histogram.h"

namespace fathom::lab::histogram {
namespace {

constexpr int kThreads = 1024;

__global__ void __launch_bounds__(kThreads) histogram_kernel(const uint8_t* in, int n, uint32_t* out) {
  __shared__ uint32_t bins[kBins];
  if (threadIdx.x < kBins) bins[threadIdx.x] = 0;
  __syncthreads();  // all bins are cleared before any thread counts

  for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads)
    atomicAdd(&bins[in[i]], 1);

  __syncthreads();  // all elements are counted
  if (threadIdx.x < kBins && bins[threadIdx.x] > 0) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

}  // namespace

void per_block(const Histogram& p, StreamRef stream) {
  FATHOM_CUDA(cudaMemsetAsync(p.out.data(), 0, static_cast<size_t>(p.out.bytes()), stream));
  const int64_t n = p.in.size();
  if (n == 0) return;
  FATHOM_EXPECT(n <= 1 << 30, "32-bit indices run beyond the number of bytes");
  const int blocks = resident_blocks<histogram_kernel>(kThreads);
  histogram_kernel<<<blocks, kThreads, 0, stream>>>(p.in.data(), static_cast<int>(n), p.out.data());
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::histogram
