// The experts (kernels/moe/experts.h) for a few rows, with packed MXFP4 weights
// (kernels/gemm/packed_weights.h, kernels/moe/pack_experts.h). Many rows: kernels/moe/experts_grouped_gemm.h.
//
// bytes   of each expert that has a row: 17/32 of its number of weights, once
// flops   2 for each weight and row
// limit   memory bandwidth; for one row the latency until it is reached counts as much
//
// An expert row is a token and one of its experts: r = t top_k + k. A row's result does not depend on T or on
// the other rows, because the order of summation is fixed. All pointers are to the device. Sums are in fp32;
// the first layer's activations are rounded to bf16.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/gemm/packed_weights.h"

namespace fathom::kernels {

// T is 0 to 8, T top_k up to 32; weights have up to 2880 columns and under 2^17 rows.

inline constexpr int64_t kMaxGemvColumns = 2880;  // of weights, w.depth

// experts [T, top_k], contiguous, those of a token all different; -1: padding, whose rows of the results are
// not written. Matrices and their rows are aligned to 16 bytes.

// The first layer with SwiGLU: a(r) for expert row r = t top_k + k from x(t). w1 is in RowOrder::gate_pairs.
// x [T, H]; missing columns up to w1.depth count as zeros. a [T top_k, w1.rows / 2], contiguous.
void experts_up_gemv(View<const bf16, 2> x, View<const int32_t, 2> experts, const PackedExperts& w1,
                     float limit, float alpha, View<bf16, 2> a, StreamRef stream);

// The second layer, weighted: expert_outputs(r) = weights(r) (W2 a(r) + b). a [T top_k, up to w2.depth],
// weights [T, top_k] and expert_outputs [T top_k, H] contiguous: the first H of w2.rows.
//
// The kernel reads `experts` before it waits for the previous kernel in a chain of dependent launches, so
// that it fetches weights while that kernel ends. `experts` must be complete before the previous kernel lets
// this one begin, as is so behind experts_up_gemv, which waits for `experts` first.
void experts_down_gemv(View<const bf16, 2> a, View<const int32_t, 2> experts, View<const float, 2> weights,
                       const PackedExperts& w2, View<float, 2> expert_outputs, StreamRef stream);

// Both layers in one launch, the same bits as experts_up_gemv and experts_down_gemv. `barrier` is a word of
// device memory that was zero before the first launch and that no two launches use at the same time; launches
// leave it as the next one needs it (cuda/grid_barrier.cuh).
void experts_gemv_fused(View<const bf16, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                        const PackedExperts& w1, const PackedExperts& w2, float limit, float alpha,
                        View<bf16, 2> a, View<float, 2> expert_outputs, uint32_t* barrier, StreamRef stream);

}  // namespace fathom::kernels
