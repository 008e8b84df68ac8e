// What a CPU did in a call, from samples: a table of functions, a timeline of threads, metrics.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/profiler.h"
#include "profile/cpu_sampling.h"
#include "profile/trace.h"

namespace fathom::profile {

struct FunctionRow {
  std::string name;
  int64_t samples = 0;
  double share    = 0;  // of all samples
  int threads     = 0;  // in which it was seen
};

struct CpuProfile {
  std::vector<FunctionRow> rows = {};  // most samples first
  int64_t calls = 0, samples = 0;
  double call_ns      = 0;                                                  // mean
  double cpu_ns       = 0;                                                  // a call, of all threads
  double minor_faults = 0, major_faults = 0, waits = 0, interruptions = 0;  // a call
  std::map<std::string, double> counters = {};                              // a call
};

CpuProfile cpu_profile(const CpuActivity& activity);

std::string to_markdown(const CpuProfile& profile);
nlohmann::json to_json(const CpuProfile& profile);  // "fathom.cpu_profile/1"
std::map<std::string, lab::Metric> metrics_of(const CpuProfile& profile);

// A track of calls, and one for each thread that was seen: samples that follow each other in a function make
// a slice.
Trace cpu_timeline(const CpuActivity& activity, const std::string& title);

}  // namespace fathom::profile
