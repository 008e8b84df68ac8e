// The problem: from logits [R, V] a token for each row, drawn from softmax(logits / temperature) as
// argmax(logit / temperature + G), where G(seed, position, id) are independent Gumbel numbers
// (core/gumbel.h). Of equal sums the lowest id wins.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/sampling/sample.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::gumbel_max {

struct Draw {
  int64_t rows, vocabulary;
  View<const float, 2> logits;
  View<const kernels::SamplingRow, 1> rules;  // temperature > 0, seed, position
  View<int32_t, 1> ids;
  // Of `noise_in_memory`: the rules of a greedy choice, and room for the sums.
  View<const kernels::SamplingRow, 1> greedy;
  View<float, 2> sums;

  Draw(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void noise_in_memory(const Draw& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void one_pass(const Draw& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void screened(const Draw& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void engine_op(const Draw& p, StreamRef stream);

}  // namespace fathom::lab::gumbel_max
