// The problem: many tokens through gpt-oss-20b's layer of 32 experts (kernels/experts.h has the formula),
// with weights in MXFP4 and x in bf16. Every variant brings the rows of an expert together first, by the
// engine's ops (kernels/expert_rows.h): sorted row i is that of slot(i); of slot s = t kTopK + k the expert e
// is experts(t, k).
//   a(i, .)     = gated units of W1[e] x(t, .) + b1[e]           in bf16
//   slots(s, .) = weight(t, k) (W2[e] a(i, .) + b2[e])
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "experiments/ch15_moe_inference/mxfp4_layers.h"
#include "lab/forward.h"

namespace fathom::lab::grouped_experts_gpu {

using mxfp4::kTopK;

inline constexpr int64_t kExperts = 32;

struct GroupedExperts {
  View<const bf16, 2> x;           // T x width, a multiple of 64
  View<const int32_t, 2> experts;  // T x kTopK, those of a token all different
  View<const float, 2> weights;    // T x kTopK
  View<const float, 2> up_bias, down_bias;
  mxfp4::Matrices up, down;
  View<bf16, 2> a;       // T kTopK x width
  View<float, 2> slots;  // T kTopK x width
  // Workspace: the rows by expert, and their x; a matrix as numbers, and the products of an expert, which has
  // at most T rows.
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

// Opens cuBLAS and makes a handle; what it returns is timed.
FATHOM_CUDA_LAUNCHER std::function<void(const GroupedExperts&, StreamRef)> one_gemm_each(
    const GroupedExperts&, StreamRef);
FATHOM_CUDA_LAUNCHER void one_launch_each(const GroupedExperts& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void grouped(const GroupedExperts& p, StreamRef stream);

}  // namespace fathom::lab::grouped_experts_gpu
