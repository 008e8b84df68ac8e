// The GPU's part of `fathom doctor`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/doctor.h"

namespace fathom::cli {

// Text: facts, libraries, ceilings, profiling rungs and claims; one line where there is no GPU. `quick`:
// facts, and ceilings where they are cached.
void print_gpu(const DoctorFlags& flags);

// {"available": false, "why_not": ..., "installed": [...]}, or all of the above, null where it was not asked
// for.
nlohmann::json gpu_json(const DoctorFlags& flags);

// Hidden flag with which `fathom doctor` starts itself to try one profiling method: a profiler may crash, and
// cannot be unloaded. Prints the state of one rung of machine/gpu_profiling.h as JSON and returns the exit
// code.
inline constexpr const char* kProbeGpuProfiling = "--probe-gpu-profiling";
int probe_gpu_profiling(const std::string& rung);

}  // namespace fathom::cli
