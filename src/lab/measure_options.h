// What a child is asked to measure, and how it reports while it works.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lab/profiler.h"
#include "lab/record.h"
#include "lab/run_options.h"

namespace fathom::lab {

struct MeasureOptions {
  std::vector<std::string> variants;  // empty: all
  std::vector<VariantRecord> failed;  // variants that ended an earlier process: not called again
  std::vector<std::string> done;      // points (as text) that an earlier process finished
  RunOptions run;                     // without its targets
  int64_t started_ns = 0;             // when the parent started this process, by the wall clock; 0: not told
};

// The parent's view of a child at work. Every call reaches the parent at once, so that it survives the child.
class Events {
 public:
  virtual ~Events() = default;
  // What happens next. The parent gives each phase its own time limit and blames `variant` if the process
  // dies in it.
  virtual void phase(std::string_view variant, std::string_view phase, double fraction_done) = 0;
  virtual void point(const PointRecord& point)                                               = 0;
  // What the profiler saw of a variant at a point that was reported before.
  virtual void profiled(const Point& at, std::string_view variant, const Profile& profile) = 0;
};

}  // namespace fathom::lab
