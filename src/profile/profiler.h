// The lab's Profiler: activity first, then counters, and what they say as files and metrics.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lab/profiler.h"
#include "profile/activity.h"
#include "profile/metrics.h"
#include "profile/range_profiler.h"

namespace fathom::profile {

struct ProfilerOptions {
  MetricSet set = MetricSet::minimal;
  bool counters = true;  // false where a replayed kernel would wait for ever: several GPUs, flags in memory
  // Of the run. Into <folder>/<experiment>/<variant>/ go trace_<point>.json for ui.perfetto.dev,
  // kernels_<point>.json and kernels_<point>.md, each whole or not at all. Empty: no files.
  std::string folder;
};

// Where the records come from; a test puts its own in their place.
struct ProfilerSources {
  std::function<Result<Activity>(const std::function<void()>&)> activity = watch_activity;
  std::function<Result<CounterRun>(MetricSet, size_t, const std::function<void()>&)> counters = count_kernels;
};

std::unique_ptr<lab::Profiler> make_profiler(ProfilerOptions options, ProfilerSources sources = {});

// "trace_n=4096,dtype=bf16.json"; "trace.json" for a point without parameters.
std::string profile_file_name(std::string_view kind, const lab::Point& at, std::string_view extension);

}  // namespace fathom::profile
