// What all variants share: the layout of a stage, its loads, its products, and the rows of the result.
#pragma once

#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "cuda/wgmma.cuh"
#include "router.h"

namespace fathom::lab::warp_specialization {

inline constexpr int kExperts = Router::kExperts, kMaxGroups = Router::kMaxGroups,
                     kMaxBuffers = Router::kMaxBuffers;
inline constexpr int kRows       = 64;  // tokens of a warpgroup
inline constexpr int kDepth      = 64;  // of a step: a row of a stage is 128 bytes, the width of the swizzle
inline constexpr int kWarpgroup  = 128;
inline constexpr int kRowBytes   = kDepth * 2;
inline constexpr int kBoxBytes   = kRows * kRowBytes;     // 64 tokens of x
inline constexpr int kWBytes     = kExperts * kRowBytes;  // of w
inline constexpr int kBarrierBytes    = 1024;  // in front of the stages, which begin at multiples of it
inline constexpr int kMostSharedBytes = 227 * 1024;

using Accumulator = float[kExperts / 2];

// What the kernels take.
struct Shape {
  int tokens, steps, groups, buffers;

  Shape(const Router& p)
      : tokens(static_cast<int>(p.x.extent(0))),
        steps(static_cast<int>(blocks_for(p.x.extent(1), kDepth))),
        groups(static_cast<int>(p.num_consumer_groups)),
        buffers(static_cast<int>(p.num_buffers)) {}

  __host__ __device__ int tile_rows() const { return groups * kRows; }
  __host__ __device__ int tiles() const { return (tokens + tile_rows() - 1) / tile_rows(); }
  // A stage: the tokens of each group, then w.
  __host__ __device__ int stage_bytes() const { return groups * kBoxBytes + kWBytes; }
};

inline CUtensorMap map_of_x(const Router& p) {
  return tensor_map(p.x.data(), DType::bf16, p.x.extent(0), p.x.extent(1), p.x.extent(1) * 2, kRows, kDepth,
                    Swizzle::bytes_128);
}
inline CUtensorMap map_of_w(const Router& p) {
  return tensor_map(p.w.data(), DType::bf16, kExperts, p.x.extent(1), p.x.extent(1) * 2, kExperts, kDepth,
                    Swizzle::bytes_128);
}

// Starts the loads of a step of a tile, by one thread. What lies beyond the matrices becomes zeros, which
// count as bytes.
__device__ inline void load_step(const Shape& s, const CUtensorMap& x, const CUtensorMap& w, int tile,
                                 int step, unsigned char* stage, uint64_t* full) {
  ptx::mbarrier_arrive_expect_tx(full, s.stage_bytes());
  for (int g = 0; g < s.groups; ++g)
    ptx::cp_async_bulk_tensor_load(stage + g * kBoxBytes, &x, tile * s.tile_rows() + g * kRows, step * kDepth,
                                   full);
  ptx::cp_async_bulk_tensor_load(stage + s.groups * kBoxBytes, &w, 0, step * kDepth, full);
}

// sums (+)= the tokens of the calling warpgroup times w, of one step. Waits until the tensor cores have read
// the stage.
__device__ inline void multiply_step(const Shape& s, Accumulator& sums, uint32_t stage, bool first) {
  const int group  = static_cast<int>(threadIdx.x) / kWarpgroup;
  const uint64_t x = ptx::smem_descriptor_128b(stage + group * kBoxBytes),
                 w = ptx::smem_descriptor_128b(stage + s.groups * kBoxBytes);
  ptx::warpgroup_fence_operand(sums);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kDepth / 16; ++k)
    ptx::wgmma(sums, ptx::advance_descriptor(x, 32 * k), ptx::advance_descriptor(w, 32 * k), !first || k > 0);
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  ptx::warpgroup_fence_operand(sums);
}

// Stores the sums of the calling warpgroup's tokens from registers.
__device__ inline void store_rows(const Shape& s, const Accumulator& sums, int tile, bf16* out) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row = tile * s.tile_rows() + static_cast<int>(threadIdx.x) / 32 * 16 + g;
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (row + 8 * r < s.tokens)
#pragma unroll
      for (int j = 0; j < kExperts / 8; ++j)
        *reinterpret_cast<uint32_t*>(out + int64_t{row + 8 * r} * kExperts + 8 * j + 2 * t) =
            pack_bf16x2(sums[4 * j + 2 * r], sums[4 * j + 2 * r + 1]);
}

}  // namespace fathom::lab::warp_specialization
