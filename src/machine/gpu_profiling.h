// Rungs of profiling on the GPU: what can be known about a run beyond its time, each tried for real, because
// a library that loads and a driver that supports it may still be forbidden to count.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom::machine {

enum class GpuRung {
  nvml,            // clocks, power, temperature, energy
  gpm,             // utilisation of units over an interval, by NVML
  activity,        // CUPTI: start, end, registers and grid of every kernel and copy
  range_profiler,  // CUPTI: any counter over a range of the program
  pm_sampling,     // CUPTI: counters of the whole GPU every 100 us
};
inline constexpr GpuRung kGpuRungs[] = {GpuRung::nvml, GpuRung::gpm, GpuRung::activity,
                                        GpuRung::range_profiler, GpuRung::pm_sampling};
std::string_view to_string(GpuRung rung);  // "range_profiler"
std::string_view describe(GpuRung rung);   // what it gives, in a few words

struct GpuRungState {
  GpuRung rung = GpuRung::nvml;
  std::optional<std::string> why_not;  // absent: it works
  std::string seen;                    // what it showed, in a few words
  bool operator==(const GpuRungState&) const = default;
};

// Up to two seconds. Where this process has no GPU, every rung says so.
GpuRungState probe_gpu_profiling(GpuRung rung);
// CUPTI stays in a process once it was there, has one place for all tools, and has been seen to crash on what
// it does not know: these rungs make a CUDA context and want a process that measures nothing and that nobody
// would miss.
bool wants_own_process(GpuRung rung);

std::optional<GpuRung> gpu_rung_named(std::string_view name);
nlohmann::json to_json(const GpuRungState& state);
Result<GpuRungState> gpu_rung_from_json(const nlohmann::json& json);

}  // namespace fathom::machine
