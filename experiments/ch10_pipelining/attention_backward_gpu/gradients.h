// The problem: the backward pass of attention over a prompt of T tokens in bf16, as training runs it for each
// layer and sequence. kernels/attention/attention_backward.h has the formula.
#pragma once

#include <functional>

#include "core/dtype.h"
#include "lab/problem.h"

namespace fathom::lab::attention_backward_gpu {

struct Gradients {
  bool causal;
  float scale;                              // 1 / sqrt(D)
  View<const bf16, 3> q, k, v, out, d_out;  // T x Hq x D; of k and v T x Hkv x D
  View<const float, 2> lse;                 // Hq x T
  View<bf16, 3> dq, dk, dv;                 // like q, k, v
  View<float, 1> op_workspace;              // of the op, and of recomputed
  // Workspace of scores_in_memory, for one query head. Rows begin at multiples of 8.
  View<float, 2> scores, d_weights;  // T x T
  View<bf16, 2> weights, d_scores;   // T x T
  View<float, 2> dk_sums, dv_sums;   // T x D: of a group's heads

  Gradients(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  FATHOM_HD int64_t tokens() const { return q.extent(0); }
  FATHOM_HD int64_t heads() const { return q.extent(1); }
  FATHOM_HD int64_t kv_heads() const { return k.extent(1); }
  FATHOM_HD int64_t head_dim() const { return q.extent(2); }
};

FATHOM_CUDA_LAUNCHER std::function<void(const Gradients&, StreamRef)> scores_in_memory(const Gradients&,
                                                                                       StreamRef);
FATHOM_CUDA_LAUNCHER void recomputed(const Gradients& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void atomic_dq(const Gradients& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void deterministic_dq(const Gradients& p, StreamRef stream);
// Opens cuDNN and builds a plan for this problem's extents; the returned call is timed.
FATHOM_CUDA_LAUNCHER std::function<void(const Gradients&, StreamRef)> cudnn_backward(const Gradients&,
                                                                                     StreamRef);

}  // namespace fathom::lab::attention_backward_gpu
