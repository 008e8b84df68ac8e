// One training step of two layers on two stages           (two_stages.h)
//
// bytes   the same, in pieces
// flops   6 kRows kWidth^2 on each stage
// limit   FMA peak of each stage's core; modelled bubble 1 / (3 micro-batches + 1) where all passes take the
// same time idea    ZB-H1: weights' gradients are passes of their own, made where a stage would wait
#include "two_stages.h"

namespace fathom::lab::pipeline_parallel {

Step weights_last(const TwoStages& p, Context&) {
  return step_by(zero_bubble_h1(kStages, p.micro_batches), p.micro_batches);
}

}  // namespace fathom::lab::pipeline_parallel
