// The two phases, as all kernels have them, and how large their grids are.
#pragma once

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>

#include "clip.h"
#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "cuda/per_device.h"

namespace fathom::lab::grid_sync {

namespace cg = cooperative_groups;

inline constexpr int kThreads = 512;

// Where a thread begins in the array and how far it steps; in vectors of 4.
struct Walk {
  int64_t first, step;
};
__device__ inline Walk walk() {
  return {int64_t{blockIdx.x} * blockDim.x + threadIdx.x, int64_t{gridDim.x} * blockDim.x};
}

__device__ inline float squares(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }
__device__ inline float4 scaled(float4 v, float by) { return {v.x * by, v.y * by, v.z * by, v.w * by}; }

// Of the elements of the calling thread. The last n % 4 elements belong to the first threads.
__device__ inline float own_squares(const float* in, int64_t n, Walk own) {
  float sum = 0;
#pragma unroll 4
  for (int64_t v = own.first; v < n / 4; v += own.step)
    sum += squares(reinterpret_cast<const float4*>(in)[v]);
  for (int64_t i = n / 4 * 4 + own.first; i < n; i += own.step) sum += in[i] * in[i];
  return sum;
}
__device__ inline void scale_own(const float* in, float* out, int64_t n, Walk own, float by) {
#pragma unroll 4
  for (int64_t v = own.first; v < n / 4; v += own.step)
    reinterpret_cast<float4*>(out)[v] = scaled(reinterpret_cast<const float4*>(in)[v], by);
  for (int64_t i = n / 4 * 4 + own.first; i < n; i += own.step) out[i] = in[i] * by;
}

// For all threads of the block.
__device__ inline float block_sum(const cg::thread_block& block, float value) {
  __shared__ float of_warp[32];
  const auto warp = cg::tiled_partition<32>(block);
  const float sum = cg::reduce(warp, value, cg::plus<float>());
  block.sync();  // all have read of_warp of an earlier sum
  if (warp.thread_rank() == 0) of_warp[warp.meta_group_rank()] = sum;
  block.sync();  // of_warp is complete
  return cg::reduce(warp, warp.thread_rank() < warp.meta_group_size() ? of_warp[warp.thread_rank()] : 0.0f,
                    cg::plus<float>());
}
__device__ inline float sum_of(const cg::thread_block& block, const float* partial, int count) {
  float sum = 0;
  for (int i = static_cast<int>(block.thread_rank()); i < count; i += static_cast<int>(block.size()))
    sum += partial[i];
  return block_sum(block, sum);
}

__device__ inline float scale_for(float sum_squares) {
  return sum_squares > kMaxNorm * kMaxNorm ? kMaxNorm / sqrtf(sum_squares) : 1.0f;
}

// ---- launches

// A block for kThreads vectors, but no more than `most`.
inline unsigned blocks_up_to(int64_t n, int64_t most, int threads = kThreads) {
  const int64_t enough = (n + 4 * threads - 1) / (4 * threads);
  return static_cast<unsigned>(std::min({enough, most, kMaxBlocks}));
}

// What the GPU holds at once, with `shared` bytes of dynamic shared memory a block.
template <auto* kKernel>
int64_t resident_blocks(int threads = kThreads, int shared = 0) {
  static PerDevice<int> blocks;
  return blocks.get([&] {
    if (shared > 0)
      FATHOM_CUDA(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    int each = 0;
    FATHOM_CUDA(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kKernel, threads, static_cast<size_t>(shared)));
    return each * multiprocessors();
  });
}

// All blocks run at once, or the launch fails: only then may they wait for each other.
template <class... Parameters>
void launch_cooperative(void (*kernel)(Parameters...), unsigned blocks, int threads, int shared, int cluster,
                        StreamRef stream, Parameters... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id                  = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative     = 1;
  attributes[1].id                  = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x    = static_cast<unsigned>(cluster);
  attributes[1].val.clusterDim.y    = 1;
  attributes[1].val.clusterDim.z    = 1;
  const cudaLaunchConfig_t config   = {.gridDim          = dim3(blocks),
                                       .blockDim         = dim3(static_cast<unsigned>(threads)),
                                       .dynamicSmemBytes = static_cast<size_t>(shared),
                                       .stream           = stream,
                                       .attrs            = attributes,
                                       .numAttrs         = cluster > 1 ? 2u : 1u};
  FATHOM_CUDA(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace fathom::lab::grid_sync
