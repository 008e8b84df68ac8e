// The experts (kernels/experts.h) of a few rows, with MXFP4 weights that were packed for the tensor cores
// (kernels/packed_weights.h); and packing them. Many rows: kernels/packed_experts_many.h.
//
// bytes   of each expert that has a row: 17/32 of its weights, once
// flops   2 of each weight and row
// limit   memory bandwidth; for one row the time until it is reached counts as much
//
// A row's result does not depend on T or on the other rows: one order of summation for all. All pointers are
// to the device. Sums are in fp32, what the first layer hands to the second is rounded to bf16.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/packed_weights.h"

namespace fathom::kernels {

// ---- packing, when a model is loaded ----

// PackedExperts::times is 2^exponent_of(largest), where `largest` is the largest code among a matrix's scales
// (255, the NaN, is none). Scales are kept as 2^0 to 2^128 times the one of code `exponent`, and a smaller
// one becomes 2^0: blocks whose scale is below 2^-128 of the largest come out too large, but still below
// 2^-125 of what the largest scale can hold. Checkpoints have no such blocks, and with a largest code up to
// 128 (a scale of 2) nothing is lost at all.
constexpr int exponent_of(int largest) { return std::max(0, largest - 128); }

// blocks [E, out, G, 16] and scales [E, out, G], contiguous, as checkpoints have them (Mxfp4Matrices): `in`
// is 32 G. Each expert becomes packed_rows(order, out, 0) (kernels/packed_linear.h) x padded(32 G) weights at
// `tiles` and their scales at `packed_scales`; padding is zero. order: plain or gate_pairs. E is any number
// of experts, so that a model can be packed in parts.
void pack_experts(View<const uint8_t, 4> blocks, View<const uint8_t, 3> scales, RowOrder order, int exponent,
                  uint8_t* tiles, uint8_t* packed_scales, StreamRef stream);

// ---- products: T from 0 to 8, T top_k up to 32, weights of up to 2880 columns and under 2^17 rows ----

inline constexpr int64_t kMostFewColumns = 2880;  // of weights, w.depth

// experts [T, top_k], contiguous, those of a token all different; -1: padding, whose rows of the results are
// left as they are. Matrices and their rows are aligned to 16 bytes.

// The first layer: w1 in RowOrder::gate_pairs, its units activated: a(t top_k + k) is what token t's k-th
// expert has of x(t). x [T, H], whose columns up to w1.depth count as zeros; a [T top_k, w1.rows / 2],
// contiguous.
void experts_up_few(View<const bf16, 2> x, View<const int32_t, 2> experts, const PackedExperts& w1,
                    float limit, float alpha, View<bf16, 2> a, StreamRef stream);

// The second layer: slots(s) = weights(s) (W2 a(s) + b), s = t top_k + k. a [T top_k, up to w2.depth],
// weights [T, top_k] and slots [T top_k, H] contiguous, of w2.rows the first H.
//
// `experts` must be complete before the kernel in front of this one lets it begin, as they are behind
// experts_up_few, which waits for them first: weights are fetched while that kernel ends.
void experts_down_few(View<const bf16, 2> a, View<const int32_t, 2> experts, View<const float, 2> weights,
                      const PackedExperts& w2, View<float, 2> slots, StreamRef stream);

}  // namespace fathom::kernels
