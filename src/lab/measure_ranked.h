// Measures an experiment whose sample is one step of several ranks (lab/rank.h): it takes as long as its
// slowest rank.
#pragma once

#include "lab/experiment_info.h"
#include "lab/measure_options.h"

namespace fathom::lab {

// Proves all variants at the check points on every rank, then times them in rounds at each timed point. A
// variant at which a rank dies is crashed; the others are measured by a new group.
void measure_ranked(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events);

}  // namespace fathom::lab
