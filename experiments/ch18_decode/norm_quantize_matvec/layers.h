// The first projection of a decode step's layers with weights in FP8: L layers, one after the other, each
// with its own norm and matrix.
//   y(l, t, k)   = x(l, t, k) gamma(l, k) / sqrt(mean_k x(l, t, k)^2 + epsilon)
//   s(l, t)      = max_k |y(l, t, k)| / 448
//   out(l, t, n) = s(l, t) row_scales(l, n) sum_k e4m3(y(l, t, k) / s(l, t)) w(l, n, k)
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::norm_quantize_matvec {

inline constexpr float kEpsilon = 1e-5f;
inline constexpr int kMaxRows   = 8;

struct Layers {
  View<const bf16, 3> x;            // L x T x K
  View<const bf16, 2> gamma;        // L x K
  View<const fp8_e4m3, 3> w;        // L x N x K
  View<const float, 2> row_scales;  // L x N
  View<float, 3> out;               // L x T x N
  // Workspace of one layer, of variants with more than one kernel.
  View<bf16, 2> y;          // T x K
  View<fp8_e4m3, 2> codes;  // T x K
  View<float, 1> scales;    // T

  Layers(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t l, int64_t t, int64_t n) const;
};

FATHOM_CUDA_LAUNCHER void three_kernels(const Layers& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void two_kernels(const Layers& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fused(const Layers& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void weights_first(const Layers& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void dependent_launch(const Layers& p, StreamRef stream);

}  // namespace fathom::lab::norm_quantize_matvec
