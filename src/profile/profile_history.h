// Continuous profiling: a CPU profile of this process for every minute, say, of which the latest are kept as
// files. (Ren et al., Google-wide profiling, IEEE Micro 2010.)
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/result.h"
#include "profile/cpu_profiler.h"

namespace fathom::profile {

struct ProfileHistory {
  std::filesystem::path folder;  // is created; two processes in one would delete each other's files
  std::chrono::milliseconds window{60'000};
  int64_t keep                                 = 240;  // files; older ones are deleted
  std::function<void(const std::string&)> warn = {};   // once: of a file that could not be written
};

// From now on until `profiler` ends, windows follow each other. Each becomes a file in pprof's format,
// cpu-20261129T120000Z.pb by its beginning in UTC, and so does what there is at the end. Other files in the
// folder stay.
Status keep_profiles(CpuProfiler& profiler, ProfileHistory history);

}  // namespace fathom::profile
