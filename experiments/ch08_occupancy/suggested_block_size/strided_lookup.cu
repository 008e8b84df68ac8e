// out(i) = table(code(i))                    n codes of 4 bytes, fp32
//
// bytes   8 n      4 n read + 4 n written; the table, 64 KiB, is read once by each block, from L2
// flops   0
// limit   DRAM bandwidth. H200: n = 67108864 moves 537 MB, 0.13 ms at 4 TB/s
// idea    the grid of an occupancy study: shared memory allows three blocks of any size up to 682 threads or
//         two of 1024, and each thread has kLoads loads in flight
#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "strided_lookup.h"

namespace fathom::lab::suggested_block_size {
namespace {

using occupancy::kEntries, occupancy::kSharedMemory;

constexpr int kMostThreads = 1024;

template <int kLoads>
__global__ void __launch_bounds__(kMostThreads)
    lookup_kernel(const int* code, const float* table, float* out, int n) {
  extern __shared__ float4 entries[];
  const int threads = blockDim.x;
  for (int e = threadIdx.x; e < kEntries / 4; e += threads)
    entries[e] = reinterpret_cast<const float4*>(table)[e];
  __syncthreads();  // the table is complete before any thread reads it

  const float* values = reinterpret_cast<const float*>(entries);
  const int step      = kLoads * threads;
  for (int first = blockIdx.x * step + threadIdx.x; first < n; first += gridDim.x * step) {
    int c[kLoads];
#pragma unroll
    for (int l = 0; l < kLoads; ++l) {
      const int i = first + l * threads;
      c[l]        = i < n ? code[i] : 0;
    }
#pragma unroll
    for (int l = 0; l < kLoads; ++l) {
      const int i = first + l * threads;
      if (i < n) out[i] = values[c[l]];
    }
  }
}

using Kernel = void (*)(const int*, const float*, float*, int);

// The kernel with so many loads. Ready for 64 KiB of shared memory: beyond 48 KiB it has to ask, and the L1
// has to make room for as many blocks as fit.
Kernel kernel_of(int64_t loads) {
  const Kernel kernel = loads == 1   ? lookup_kernel<1>
                        : loads == 2 ? lookup_kernel<2>
                        : loads == 4 ? lookup_kernel<4>
                        : loads == 8 ? lookup_kernel<8>
                                     : nullptr;
  FATHOM_EXPECT(kernel, "a thread has 1, 2, 4 or 8 loads in flight (-a loads=4)");
  return kernel;
}
Kernel with_shared_memory(Kernel kernel) {
  FATHOM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedMemory));
  FATHOM_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared));
  return kernel;
}

}  // namespace

LaunchShape resident(int64_t loads, int threads) {
  int each = 0;
  FATHOM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, with_shared_memory(kernel_of(loads)),
                                                            threads, kSharedMemory));
  return {.threads = threads, .blocks = each * multiprocessors()};
}

LaunchShape suggested(int64_t loads) {
  LaunchShape shape{};
  FATHOM_CUDA(cudaOccupancyMaxPotentialBlockSize(&shape.blocks, &shape.threads,
                                                 with_shared_memory(kernel_of(loads)), kSharedMemory));
  return shape;
}

void look_up(const StridedLookup& p, LaunchShape shape, StreamRef stream) {
  const int64_t n = p.out.size();
  p.launch(0)     = shape.threads;
  p.launch(1)     = shape.blocks;
  if (n == 0) return;
  FATHOM_EXPECT(n <= 1 << 30, "32-bit indices run to twice the number of elements");
  kernel_of(p.loads)<<<shape.blocks, shape.threads, kSharedMemory, stream>>>(
      p.code.data(), p.table.data(), p.out.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::suggested_block_size
