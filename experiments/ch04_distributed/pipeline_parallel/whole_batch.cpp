// One training step of two layers on two stages           (two_stages.h)
//
// bytes   4 kRows kWidth through shared memory in each direction
// flops   6 kRows kWidth^2 on each stage
// limit   FMA peak of each stage's core; modelled bubble half the time
// idea    baseline: the batch in one piece; one stage works, the other waits
#include "two_stages.h"

namespace fathom::lab::pipeline_parallel {

Step whole_batch(const TwoStages&, Context&) { return step_by(gpipe(kStages, 1), 1); }

}  // namespace fathom::lab::pipeline_parallel
