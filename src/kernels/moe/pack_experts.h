// Packs a checkpoint's MXFP4 experts into the layout of kernels/gemm/packed_weights.h, once, when a model is
// loaded. All pointers are to the device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/gemm/packed_weights.h"

namespace fathom::kernels {

// PackedExperts::output_scale is 2^output_exponent(largest), where `largest` is the largest E8M0 code among a
// matrix's scales (255, the NaN, is none). Packed scales are 2^0 to 2^128 times the scale of code
// `exponent`; a smaller scale becomes 2^0. So blocks whose scale is below 2^-128 of the largest come out too
// large, but still below 2^-125 of what the largest scale can hold. Checkpoints have no such blocks, and
// where the largest code is at most 128 (a scale of 2) nothing is lost at all.
constexpr int output_exponent(int largest) { return std::max(0, largest - 128); }

// blocks [E, out, G, 16] and scales [E, out, G], contiguous, as checkpoints have them (Mxfp4Matrices): `in`
// is 32 G. Each expert becomes packed_rows(order, out, 0) (kernels/gemm/packed_weights.h) x padded(32 G)
// weights at `tiles` and their scales at `packed_scales`; padding is zero. order: plain or gate_pairs. E is
// any number of experts, so that a model can be packed in parts.
void pack_experts(View<const uint8_t, 4> blocks, View<const uint8_t, 3> scales, RowOrder order, int exponent,
                  uint8_t* tiles, uint8_t* packed_scales, StreamRef stream);

}  // namespace fathom::kernels
