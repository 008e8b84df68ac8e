// From logits [R, V] to a token for each row: a draw from softmax(logits / temperature), cut to the fewest
// likeliest tokens that have top_p of the probability. What is drawn at which random number is settled by
// engine/sampler.h: the first token, by id, at which the running sum passes u times the whole.
#pragma once

#include "core/stream.h"
#include "core/view.h"
#include "kernels/token_choice.h"
#include "lab/forward.h"

namespace fathom::lab::token_choice {

struct Choice {
  int64_t rows, vocabulary;
  View<const float, 2> logits;
  View<const kernels::TokenRule, 1> rules;
  View<int32_t, 1> ids;
  // Workspace of who sorts: keys, before and behind a pass of the sort; weights and their running sums; the
  // last key that may come, of each row; what the library likes.
  View<uint64_t, 2> keys;
  View<double, 1> sums;
  View<uint64_t, 1> last;
  View<uint8_t, 1> scratch;

  Choice(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void sorted(const Choice& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void searched(const Choice& p, StreamRef stream);

}  // namespace fathom::lab::token_choice
