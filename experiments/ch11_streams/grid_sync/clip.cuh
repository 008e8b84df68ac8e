// The two phases, as all kernels have them, in the groups of cooperative_groups: a thread sums its own
// elements, a tile of 32 the threads of a warp, a tile of 16 the warps of a block.
#pragma once

#include <cooperative_groups.h>

#include "clip.h"
#include "cuda/check.h"
#include "cuda/cooperative_launch.cuh"

namespace fathom::lab::grid_sync {

namespace cg = cooperative_groups;

inline constexpr int kThreads = 512, kWarps = kThreads / 32;

// Where a thread begins and how far it steps, in vectors of 4. `blocks` is the number of those that share the
// array.
struct Walk {
  int64_t first, step;
};
__device__ inline Walk walk(int blocks) {
  return {int64_t{blockIdx.x} * kThreads + threadIdx.x, int64_t{blocks} * kThreads};
}

// The last n % 4 elements belong to the first threads.
__device__ inline float own_squares(const float* in, int64_t n, Walk own) {
  float sum = 0;
#pragma unroll 4
  for (int64_t v = own.first; v < n / 4; v += own.step) {
    const float4 x = reinterpret_cast<const float4*>(in)[v];
    sum += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
  }
  if (const int64_t i = n / 4 * 4 + own.first; i < n) sum += in[i] * in[i];
  return sum;
}
__device__ inline void scale_own(const float* in, float* out, int64_t n, Walk own, float by) {
#pragma unroll 4
  for (int64_t v = own.first; v < n / 4; v += own.step) {
    const float4 x                    = reinterpret_cast<const float4*>(in)[v];
    reinterpret_cast<float4*>(out)[v] = {x.x * by, x.y * by, x.z * by, x.w * by};
  }
  if (const int64_t i = n / 4 * 4 + own.first; i < n) out[i] = in[i] * by;
}

// All threads of the tile get it.
template <unsigned kSize>
__device__ float tile_sum(const cg::thread_block_tile<kSize, cg::thread_block>& tile, float value) {
#pragma unroll
  for (unsigned other = kSize / 2; other > 0; other /= 2) value += tile.shfl_xor(value, other);
  return value;
}

// All threads of the block get it. Between two calls lies another barrier of the block.
__device__ inline float block_sum(const cg::thread_block& block, float value) {
  __shared__ float of_warp[kWarps];
  const auto warp = cg::tiled_partition<32>(block);
  value           = tile_sum(warp, value);
  if (warp.thread_rank() == 0) of_warp[warp.meta_group_rank()] = value;
  block.sync();  // of_warp is complete
  const auto warps = cg::tiled_partition<kWarps>(block);
  return tile_sum(warps, of_warp[warps.thread_rank()]);
}
__device__ inline float sum_of(const cg::thread_block& block, const float* partial, int count) {
  float sum = 0;
  for (int i = static_cast<int>(block.thread_rank()); i < count; i += kThreads) sum += partial[i];
  return block_sum(block, sum);
}

__device__ inline float scale_for(float squares) {
  return squares > kMaxNorm * kMaxNorm ? kMaxNorm / sqrtf(squares) : 1.0f;
}

// As many blocks as the array has work for, and no more than the GPU holds at once.
template <auto* kKernel>
int blocks_of(int64_t n) {
  const int64_t enough = (n + 4 * kThreads - 1) / (4 * kThreads);
  const int64_t most   = resident_blocks<kKernel, kThreads>();
  FATHOM_EXPECT(most <= kMaxBlocks, "the workspace has no room for the sums of so many blocks");
  return static_cast<int>(enough < most ? enough : most);
}

}  // namespace fathom::lab::grid_sync
