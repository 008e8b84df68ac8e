// Measures an experiment whose sample is the replay of a session (lab/session.h).
#pragma once

#include "lab/experiment_info.h"
#include "lab/measure_options.h"

namespace fathom::lab {

// Six paired rounds by default, three of a quick run; the interval of a ratio is their range. Where a session
// cannot start because this machine lacks something (Unavailable), its variant is a typed skip.
void measure_session(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events);

}  // namespace fathom::lab
