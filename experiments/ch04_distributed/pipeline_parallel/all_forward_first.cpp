// One training step of two layers on two stages           (two_stages.h)
//
// bytes   the same, in pieces
// flops   6 kRows kWidth^2 on each stage
// limit   FMA peak of each stage's core; modelled bubble 1 / (micro-batches + 1)
// idea    GPipe: micro-batches, so that both stages work; all forward passes come first
#include "two_stages.h"

namespace fathom::lab::pipeline_parallel {

Step all_forward_first(const TwoStages& p, Context&) {
  return step_by(gpipe(kStages, p.micro_batches), p.micro_batches);
}

}  // namespace fathom::lab::pipeline_parallel
