// Measures one experiment inside this process. The method is docs/design.md §3; docs/method.md explains it to
// users.
#pragma once

#include "lab/experiment_info.h"
#include "lab/measure_options.h"

namespace fathom::lab {

void measure_experiment(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events,
                        Profiler* profiler = nullptr);

}  // namespace fathom::lab
