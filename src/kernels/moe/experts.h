// The experts of a Mixture-of-Experts layer (SwiGLU MLPs), added to the residual stream. For each expert e of
// a token:
//   u    = W1[e] x + b1[e]                        2 I rows, even ones gate, odd ones up
//   g, l = min(u_even, limit), clamp(u_odd, -limit, limit)
//   a    = g sigmoid(alpha g) (l + 1)
//   y   += weight (W2[e] a + b2[e])
//
// bytes   of each expert that has a token: 1.5 H I 17/16 in MXFP4 (4.25 bits a weight), once
// flops   6 H I for each token and expert of it
// limit   few tokens: memory bandwidth, if 4-bit numbers can be dequantised that fast; many: the FMA units
#pragma once

#include <cstdint>

#include "core/view.h"
#include "kernels/execution.h"
#include "kernels/moe/expert_weights.h"

namespace fathom::kernels {

// x, y [T, H], disjoint; experts, weights [T, top_k], the experts of a token all different, but for
// kNoExpert, whose weight must be finite. The result of a row does not depend on the other rows.
void experts_reference(View<const float, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                       const ExpertWeights& w, View<float, 2> y, const Execution& on);
void experts_cpu(View<const float, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                 const ExpertWeights& w, View<float, 2> y, const Execution& on);
int64_t experts_cpu_scratch_bytes(int64_t rows, int64_t top_k, int64_t num_experts, int64_t hidden,
                                  int64_t intermediate, int threads);

}  // namespace fathom::kernels
