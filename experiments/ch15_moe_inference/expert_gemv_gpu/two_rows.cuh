// The two layers, for warps that compute two sums of a slot at a time: packed rows p and p + 8
// (kernels/gemm/packed_weights.h). In the first layer these are the gate and the linear part of one unit.
#pragma once

#include "experiments/ch15_moe_inference/mxfp4_unpack.cuh"
#include "experiments/rows.cuh"
#include "expert_gemv.h"
#include "kernels/moe/swiglu_epilogue.cuh"
#include "kernels/moe/weighted_epilogue.cuh"

namespace fathom::lab::expert_gemv_gpu {

inline constexpr int kWarps = 4, kThreads = 32 * kWarps;

// The packed row of the first of a pair; the second is 8 further.
__device__ inline int packed_row(int pair) { return pair / 8 * 16 + pair % 8; }

struct Up {
  static constexpr kernels::RowOrder kOrder = kernels::RowOrder::gate_pairs;
  View<const bf16, 2> x;
  const int32_t* experts;
  kernels::SwigluEpilogue to;  // with the biases of all experts
  int64_t rows;

  explicit Up(const ExpertGemv& p)
      : x(p.x),
        experts(p.experts.data()),
        to{.a            = p.a.data(),
           .units        = p.a.extent(1),
           .bias         = p.up.packed.bias,
           .output_scale = 1,
           .limit        = mxfp4::kLimit,
           .alpha        = mxfp4::kAlpha},
        rows(p.up.packed.rows) {}

  __device__ int expert(int slot) const { return experts[slot]; }
  __device__ const uint4* input(int slot) const {
    return rows::eights(x.data()) + slot / static_cast<int>(kTopK) * (x.extent(1) / rows::kEight);
  }
  __device__ void store(int expert, int p, int slot, float2 sums) const {
    kernels::SwigluEpilogue of_expert = to;
    of_expert.bias += expert * rows;
    of_expert(p, slot, sums.x, sums.y);
  }
};

struct Down {
  static constexpr kernels::RowOrder kOrder = kernels::RowOrder::plain;
  View<const bf16, 2> a;
  const int32_t* experts;
  const float* weights;
  kernels::WeightedEpilogue to;  // with the biases of all experts
  int64_t rows;

  explicit Down(const ExpertGemv& p)
      : a(p.a),
        experts(p.experts.data()),
        weights(p.weights.data()),
        to{.y = p.slots.data(), .hidden = p.slots.extent(1), .bias = p.down.packed.bias, .output_scale = 1},
        rows(p.down.packed.rows) {}

  __device__ int expert(int slot) const { return experts[slot]; }
  __device__ const uint4* input(int slot) const {
    return rows::eights(a.data()) + slot * (a.extent(1) / rows::kEight);
  }
  __device__ void store(int expert, int p, int slot, float2 sums) const {
    kernels::WeightedEpilogue of_expert = to;
    of_expert.bias += expert * rows;
    of_expert(p, slot, sums.x, sums.y, weights[slot]);
  }
};

// The dot product of one block of 32 weights, unpacked in registers; without its scale.
__device__ inline float block_product(const uint4& codes, const float (&x)[32]) {
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  float sum               = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    float numbers[8];
    mxfp4::unpack(words[w], numbers);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += numbers[i] * x[8 * w + i];
  }
  return sum;
}

// Both sums over the warp, in lane 0.
__device__ inline float2 warp_sum(float2 sums) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sums.x += __shfl_down_sync(~0u, sums.x, step);
    sums.y += __shfl_down_sync(~0u, sums.y, step);
  }
  return sums;
}

}  // namespace fathom::lab::expert_gemv_gpu
