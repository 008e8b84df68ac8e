#include "lab/measure_experiment.h"

#include "lab/experiment_ranges.h"
#include "lab/measure_calls.h"
#include "lab/measure_ranked.h"
#include "lab/measure_session.h"

namespace fathom::lab {

void measure_experiment(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events,
                        Profiler* profiler) {
  const ExperimentRanges ranges(experiment.id);
  switch (experiment.shape) {
    case Shape::call:
      return measure_calls(experiment, options, events, profiler);
    case Shape::ranked:
      return measure_ranked(experiment, options, events);
    case Shape::session:
      return measure_session(experiment, options, events);
  }
}

}  // namespace fathom::lab
