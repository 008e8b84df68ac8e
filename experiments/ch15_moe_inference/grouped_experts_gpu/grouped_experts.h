// The problem: many tokens through gpt-oss-20b's layer of 32 experts (kernels/moe/experts.h has the formula),
// with weights in MXFP4 and x in bf16. Every variant first gathers the rows of each expert by the engine's
// ops (kernels/moe/permute.h): sorted row i belongs to slot(i), and slot s = t kTopK + k to expert e =
// experts(t, k).
//   a(i, .)     = gated units of W1[e] x(t, .) + b1[e]           in bf16
//   slots(s, .) = weight(t, k) (W2[e] a(i, .) + b2[e])
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "experiments/ch15_moe_inference/mxfp4_layers.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::grouped_experts_gpu {

using mxfp4::kTopK;

inline constexpr int64_t kExperts = 32;

struct GroupedExperts {
  View<const bf16, 2> x;           // T x width, a multiple of 64
  View<const int32_t, 2> experts;  // T x kTopK; a token's are all different
  View<const float, 2> weights;    // T x kTopK
  View<const float, 2> up_bias, down_bias;
  mxfp4::Matrices up, down;
  View<bf16, 2> a;       // T kTopK x width
  View<float, 2> slots;  // T kTopK x width
  // Workspace: rows sorted by expert, and their x; one dequantized matrix, and the products of one expert,
  // which has at most T rows.
  View<int32_t, 1> first, slot;  // kExperts + 1, T kTopK
  View<bf16, 2> sorted;          // T kTopK x width
  View<bf16, 2> numbers;         // 2 width x width
  View<float, 2> products;       // T x 2 width

  GroupedExperts(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

 private:
  GroupedExperts(int64_t tokens, int64_t width, Arena& arena);
};

// Opens cuBLAS and makes a handle; the returned call is timed.
FATHOM_CUDA_LAUNCHER std::function<void(const GroupedExperts&, StreamRef)> one_gemm_each(
    const GroupedExperts&, StreamRef);
FATHOM_CUDA_LAUNCHER void one_launch_each(const GroupedExperts& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void grouped(const GroupedExperts& p, StreamRef stream);

}  // namespace fathom::lab::grouped_experts_gpu
