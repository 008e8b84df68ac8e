// out = sum over b of v(b, 4),  v(b, s + 1) = leaky integrator of v(b, s)        4 branches of 4 stages, fp32
//
// flops   2 n steps for a short stage, four times as many for a long one
// limit   none: 16 CTAs a kernel. H200, n = 16384, 4096 steps: 19 us a short stage, 75 us a long one. Any
//         branch takes 132 us, the longest stages one after the other 300 us
// idea    events only where one branch needs another: at the fan-out and at the sum. Within a branch the
//         order of its stream is enough
#include <memory>

#include "experiments/ch11_streams/side_streams.h"
#include "stage.cuh"

namespace fathom::lab::event_dependencies {

Call branch_events(const Branches&, StreamRef) {
  return [streams = std::make_shared<const SideStreams>(kBranches)](const Branches& p, StreamRef stream) {
    if (p.n() == 0) return;
    streams->fork(stream);
    for (int stage = 0; stage < kStages; ++stage)
      for (int branch = 0; branch < kBranches; ++branch) run_stage(p, branch, stage, (*streams)[branch]);
    streams->join(stream);
    sum_branches(p, stream);
  };
}

}  // namespace fathom::lab::event_dependencies
