// One training step of two layers on two stages           (two_stages.h)
//
// bytes   the same, in pieces
// flops   6 kRows kWidth^2 on each stage
// limit   FMA peak of each stage's core; modelled bubble 1 / (micro-batches + 1)
// idea    1F1B: a backward pass as soon as there is one; activations of two micro-batches are kept
#include "two_stages.h"

namespace fathom::lab::pipeline_parallel {

Step backward_early(const TwoStages& p, Context&) {
  return step_by(one_f_one_b(kStages, p.micro_batches), p.micro_batches);
}

}  // namespace fathom::lab::pipeline_parallel
