// Implements the lab's Profiler. A GPU's call: activity, then counters. A CPU's: samples of where its threads
// are. Both are reported as files and metrics.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lab/profiler.h"
#include "profile/activity.h"
#include "profile/kernel_counters.h"
#include "profile/kernel_filter.h"
#include "profile/metrics.h"

namespace fathom::profile {

struct ProfilerOptions {
  CounterChoice counted;
  KernelFilter kernels;
  bool counters = true;  // false where a replayed kernel would wait forever: several GPUs, flags in memory
  // Folder of the run. <folder>/<experiment>/<variant>/ gets trace_<point>.json for ui.perfetto.dev,
  // kernels_<point> and api_<point> as .json and .md (of a CPU functions_<point>), each written atomically.
  // Empty: no files.
  std::string folder;
  double cpu_s = 0.5;  // of CPU time that the repeated calls of a CPU variant take
};

// The sources of the records, which tests replace.
struct ProfilerSources {
  std::function<Result<Activity>(const std::function<void()>&)> activity = watch_activity;
  std::function<Result<CounterRun>(const CounterChoice&, size_t, const std::function<void()>&)> counters =
      count_kernels;
};

std::unique_ptr<lab::Profiler> make_profiler(ProfilerOptions options, ProfilerSources sources = {});

// "trace_n=4096,dtype=bf16.json"; "trace.json" for a point without parameters.
std::string profile_file_name(std::string_view kind, const lab::Point& at, std::string_view extension);

}  // namespace fathom::profile
