// The problem: a few tokens through their experts, gpt-oss's layer (kernels/moe/experts.h has the formula),
// with weights in MXFP4 and x in bf16.
//   a(s, .)     = gated units of W1[e] x(t, .) + b1[e]          in bf16
//   slots(s, .) = weight(t, k) (W2[e] a(s, .) + b2[e])          slot s = t kTopK + k, e = experts(t, k)
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "experiments/ch15_moe_inference/mxfp4_layers.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::expert_gemv_gpu {

using mxfp4::kTopK;

struct ExpertGemv {
  View<const bf16, 2> x;           // T x width, a multiple of 64
  View<const int32_t, 2> experts;  // T x kTopK; a token's are all different
  View<const float, 2> weights;    // T x kTopK
  // Only of active experts. A model has more, which are not read.
  View<const float, 2> up_bias, down_bias;
  mxfp4::Matrices up, down;
  View<bf16, 2> a;       // T kTopK x width
  View<float, 2> slots;  // T kTopK x width

  ExpertGemv(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

 private:
  ExpertGemv(int64_t tokens, int64_t width, int64_t active, Arena& arena);
};

FATHOM_CUDA_LAUNCHER void plain(const ExpertGemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fused(const ExpertGemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fragments(const ExpertGemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void split_k(const ExpertGemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void persistent(const ExpertGemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void epilogue_warp(const ExpertGemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tensor_cores(const ExpertGemv& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void one_launch(const ExpertGemv& p, StreamRef stream);

}  // namespace fathom::lab::expert_gemv_gpu
