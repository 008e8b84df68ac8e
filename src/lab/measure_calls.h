// Measures an experiment whose sample is a call: proves every variant at the check points, then times all of
// them in interleaved rounds at each timed point.
#pragma once

#include "lab/experiment_info.h"
#include "lab/measure_options.h"

namespace fathom::lab {

// `profiler` looks at one call of every GPU variant after everything has been timed; null: no such pass.
void measure_calls(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events,
                   Profiler* profiler);

}  // namespace fathom::lab
