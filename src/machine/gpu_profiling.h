// Rungs of GPU profiling: facilities that tell more about a run than its time. Each is tried, because a
// library that loads and a driver that supports it may still lack the permission to count.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "cuda/device_id.h"

namespace fathom::machine {

enum class GpuRung {
  nvml,            // clocks, power, temperature, energy
  gpm,             // NVML: utilisation of units over an interval
  activity,        // CUPTI: start, end, registers and grid of every kernel and copy
  range_profiler,  // CUPTI: any counter over a range of the program
  pm_sampling,     // CUPTI: counters of the whole GPU every 100 us
};
inline constexpr GpuRung kGpuRungs[] = {GpuRung::nvml, GpuRung::gpm, GpuRung::activity,
                                        GpuRung::range_profiler, GpuRung::pm_sampling};
std::string_view to_string(GpuRung rung);  // "range_profiler"
std::string_view describe(GpuRung rung);   // its data, in a few words

struct GpuRungState {
  GpuRung rung = GpuRung::nvml;
  std::optional<std::string> why_not;  // absent: it works
  std::string seen;                    // what it measured, in a few words
  bool operator==(const GpuRungState&) const = default;
};

// Up to two seconds. Where this process has no such GPU, every rung says so.
GpuRungState probe_gpu_profiling(GpuRung rung, DeviceId device = {});
// Rungs to try in a process of their own: CUPTI cannot be unloaded, serves one client in a process, and has
// crashed on GPUs that it does not know.
bool wants_own_process(GpuRung rung);

std::optional<GpuRung> gpu_rung_named(std::string_view name);
nlohmann::json to_json(const GpuRungState& state);
Result<GpuRungState> gpu_rung_from_json(const nlohmann::json& json);

}  // namespace fathom::machine
