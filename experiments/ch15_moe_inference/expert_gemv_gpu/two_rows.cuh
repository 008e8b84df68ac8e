// The two layers for warps that have two sums of a slot at a time: packed rows p and p + 8
// (kernels/packed_weights.h), in the first layer gate and linear part of one unit.
#pragma once

#include "experiments/ch09_arithmetic_intensity/rows.cuh"
#include "expert_gemv.h"
#include "kernels/packed_epilogue.cuh"

namespace fathom::lab::expert_gemv_gpu {

inline constexpr int kWarps = 4, kThreads = 32 * kWarps;

// Which pair of rows comes first in packed order.
__device__ inline int packed_row(int pair) { return pair / 8 * 16 + pair % 8; }

struct Up {
  static constexpr kernels::RowOrder kOrder = kernels::RowOrder::gate_pairs;
  View<const bf16, 2> x;
  const int32_t* experts;
  kernels::StoreGated to;  // with the biases of all experts
  int64_t rows;

  explicit Up(const ExpertGemv& p)
      : x(p.x),
        experts(p.experts.data()),
        to{.a     = p.a.data(),
           .units = p.a.extent(1),
           .bias  = p.up.packed.bias,
           .times = 1,
           .limit = mxfp4::kLimit,
           .alpha = mxfp4::kAlpha},
        rows(p.up.packed.rows) {}

  __device__ int expert(int slot) const { return experts[slot]; }
  __device__ const uint4* input(int slot) const {
    return rows::eights(x.data()) + slot / static_cast<int>(kTopK) * (x.extent(1) / rows::kEight);
  }
  __device__ void store(int expert, int p, int slot, float2 sums) const {
    kernels::StoreGated of_expert = to;
    of_expert.bias += expert * rows;
    of_expert(p, slot, sums.x, sums.y);
  }
};

struct Down {
  static constexpr kernels::RowOrder kOrder = kernels::RowOrder::plain;
  View<const bf16, 2> a;
  const int32_t* experts;
  const float* weights;
  kernels::StoreWeighted to;  // with the biases of all experts
  int64_t rows;

  explicit Down(const ExpertGemv& p)
      : a(p.a),
        experts(p.experts.data()),
        weights(p.weights.data()),
        to{.y = p.slots.data(), .hidden = p.slots.extent(1), .bias = p.down.packed.bias, .times = 1},
        rows(p.down.packed.rows) {}

  __device__ int expert(int slot) const { return experts[slot]; }
  __device__ const uint4* input(int slot) const {
    return rows::eights(a.data()) + slot * (a.extent(1) / rows::kEight);
  }
  __device__ void store(int expert, int p, int slot, float2 sums) const {
    kernels::StoreWeighted of_expert = to;
    of_expert.bias += expert * rows;
    of_expert(p, slot, sums.x, sums.y, weights[slot]);
  }
};

// Both sums over the lanes of a warp, in lane 0.
__device__ inline float2 over_warp(float2 sums) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sums.x += __shfl_down_sync(~0u, sums.x, step);
    sums.y += __shfl_down_sync(~0u, sums.y, step);
  }
  return sums;
}

}  // namespace fathom::lab::expert_gemv_gpu
