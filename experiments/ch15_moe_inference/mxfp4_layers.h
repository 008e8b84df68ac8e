// gpt-oss's experts in MXFP4, 32 numbers of 4 bits to a scale, for the chapter's GPU experiments: `width`
// inputs and outputs, and as many gated units between (kernels/moe/experts.h has the formulas).
//
// The engine's ops read packed weights (kernels/gemm/packed_weights.h), other variants the checkpoint's
// layout. One input holds the same matrices in both.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/gemm/packed_weights.h"

namespace fathom::lab::mxfp4 {

inline constexpr int64_t kTopK = 4;  // experts of a token
inline constexpr float kLimit = 7, kAlpha = 1.702f;

// Scales are 2^-7 to 2^-5: units come out around the limit of 7 at the model's width of 2880. None is so
// large that packing would have to factor out an exponent (kernels/moe/pack_experts.h).
inline constexpr int kSmallestScale = 120, kBeyondScales = 123;

// Matrices [outputs, inputs] of E experts. Both are multiples of 64, so that packed ones have no padding.
struct Matrices {
  // [E, outputs, inputs / 32, 16], two numbers a byte, the first in the low half
  View<const uint8_t, 4> blocks;
  View<const uint8_t, 3> scales;  // [E, outputs, inputs / 32], E8M0
  kernels::PackedExperts packed;  // with biases: fp32, in packed order for every variant
};

// Byte offsets in one buffer; blocks come first.
struct Places {
  int64_t experts, outputs, inputs;
  int64_t scales        = experts * outputs * inputs / 2;
  int64_t tiles         = scales + scales / 16;
  int64_t packed_scales = tiles + scales;
  int64_t bytes         = 2 * tiles;
};

inline Matrices matrices_at(const uint8_t* buffer, const Places& at, const float* bias) {
  return {.blocks = {buffer, {at.experts, at.outputs, at.inputs / 32, 16}},
          .scales = {buffer + at.scales, {at.experts, at.outputs, at.inputs / 32}},
          .packed = {.tiles   = buffer + at.tiles,
                     .scales  = buffer + at.packed_scales,
                     .bias    = bias,
                     .experts = at.experts,
                     .rows    = at.outputs,
                     .depth   = at.inputs}};
}

// Fills a host buffer with random weights, the same in both layouts.
FATHOM_CUDA_LAUNCHER void fill_matrices(uint8_t* buffer, const Places& at, kernels::RowOrder order,
                                        uint64_t seed);

// Dequantizes matrices [outputs, inputs] to bf16, contiguously. Exact: an E2M1 number times a power of two is
// a bf16 number.
FATHOM_CUDA_LAUNCHER void dequantize(View<const uint8_t, 4> blocks, View<const uint8_t, 3> scales, bf16* to,
                                     StreamRef stream);

}  // namespace fathom::lab::mxfp4
