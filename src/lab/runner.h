// Measures one experiment inside this process: proves every variant at the check points, then times all of
// them in interleaved rounds at each timed point. The method is docs/design.md §3; docs/method.md explains it
// to users.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/experiment.h"
#include "lab/record.h"
#include "lab/supervisor.h"

namespace fathom::lab {

struct MeasureOptions {
  std::vector<std::string> variants;  // empty: all
  std::vector<VariantRecord> failed;  // variants that ended an earlier process: not called again
  std::vector<std::string> done;      // points (as text) that an earlier process finished
  RunOptions run;                     // without its targets
};

// The parent's view of a child at work; every call is written to the pipe at once.
class Events {
 public:
  virtual ~Events() = default;
  // What happens next. The parent grants each phase its own time limit and blames `variant` if the process
  // dies in it.
  virtual void phase(std::string_view variant, std::string_view phase, double fraction_done) = 0;
  virtual void point(const PointRecord& point)                                               = 0;
  // What the profiler saw of a variant at a point that was reported before.
  virtual void profiled(const Point& at, std::string_view variant, const Profile& profile) = 0;
};

// The records of an experiment's variants before anything ran: names, skips, and what failed before.
std::vector<VariantRecord> blank_records(const ExperimentInfo& experiment, const MeasureOptions& options);
// The timed points after -a and --quick.
std::vector<Point> timed_points(const ExperimentInfo& experiment, const RunOptions& run);

// `profiler`: looks at one call of every GPU variant after everything has been timed; null: no such pass.
void measure(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events,
             Profiler* profiler = nullptr);

}  // namespace fathom::lab
