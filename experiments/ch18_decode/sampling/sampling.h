// The problem: from logits [R, V] a token for each row, drawn from softmax(logits / temperature) after top-p,
// the fewest likeliest tokens that have top_p of the probability. As engine/sampler.h defines it, the random
// number u draws the first token, by id, at which the running sum of weights passes u times their total.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/sampling/sample.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::sampling {

struct Choice {
  int64_t rows, vocabulary;
  View<const float, 2> logits;
  View<const kernels::SamplingRow, 1> rules;
  View<int32_t, 1> ids;
  // Workspace of `sorted`: keys before and after a pass of the sort; weights and their running sums; each
  // row's last key within top-p; the library's scratch.
  View<uint64_t, 2> keys;
  View<double, 1> sums;
  View<uint64_t, 1> last;
  View<uint8_t, 1> scratch;

  Choice(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void sorted(const Choice& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void pivots(const Choice& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void cluster(const Choice& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void searched(const Choice& p, StreamRef stream);

}  // namespace fathom::lab::sampling
