// The experts of kernels/moe/experts.h with the inputs of both matrices, x and a, in int8. The weights must
// be in MXFP4.
//
// bytes   of each expert that has a token: 1.5 H I 17/16, once
// ops     6 H I for each token and expert of it, integers of 8 bits
// limit   few tokens: memory bandwidth; many: the units that multiply bytes
#pragma once

#include <cstdint>

#include "core/view.h"
#include "kernels/execution.h"
#include "kernels/moe/expert_weights.h"

namespace fathom::kernels {

// The contract of experts.h, with all weights in MXFP4. Each block of 32 numbers of x and of a has a scale,
// amax / 127 in fp32, and values round(number / scale), to nearest even, at most 127 in magnitude. E2M1
// numbers are integers when doubled, so a block's products and their sum are exact in integers. A block with
// an infinity or a NaN has a NaN scale, one with scale 0 (amax below 2^-143) is zero. The product of a
// number's two scales must be less than 2^128.
void experts_int8_reference(View<const float, 2> x, View<const int32_t, 2> experts,
                            View<const float, 2> weights, const ExpertWeights& w, View<float, 2> y,
                            const Execution& on);
void experts_int8_cpu(View<const float, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                      const ExpertWeights& w, View<float, 2> y, const Execution& on);
int64_t experts_int8_cpu_scratch_bytes(int64_t rows, int64_t top_k, int64_t num_experts, int64_t hidden,
                                       int64_t intermediate, int threads);

}  // namespace fathom::kernels
