#include "machine/gpu_profiling.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "machine/gpu.h"
#include "machine/gpu_profiling_cupti.h"
#include "machine/measured_json.h"
#include "machine/nvml.h"

namespace fathom::machine {
namespace {

constexpr double kGpmIntervalS = 0.2;  // NVIDIA recommends at least 0.1

Result<std::string> try_nvml(const GpuFacts& facts) {
  const Result<NvmlGpu> sensors = nvml_gpu(facts.uuid);
  if (!sensors) return sensors.error();
  const GpuSensors seen = sensors->sensors();
  std::vector<std::string> words;
  if (seen.sm_clock_hz) words.push_back(fmt::format("{:.0f} MHz", *seen.sm_clock_hz / 1e6));
  if (seen.power_w) words.push_back(fmt::format("{:.0f} W", *seen.power_w));
  if (seen.temperature_c) words.push_back(fmt::format("{:.0f} C", *seen.temperature_c));
  if (seen.energy_j) words.push_back("energy");
  if (seen.clock_event_reasons) words.push_back("clock event reasons");
  if (words.empty()) return Error{"NVML loads and knows the GPU, but shows none of its sensors"};
  return fmt::format("{}", fmt::join(words, ", "));
}

Result<std::string> try_gpm(const GpuFacts& facts) {
  const Result<NvmlGpu> sensors = nvml_gpu(facts.uuid);
  if (!sensors) return sensors.error();
  const Result<NvmlGpu::Utilisation> busy = sensors->utilisation(kGpmIntervalS);
  if (!busy) return busy.error();
  return fmt::format("SM {:.0f} %, tensor {:.0f} %, DRAM {:.0f} % over {:.0f} ms", 100 * busy->sm,
                     100 * busy->tensor, 100 * busy->dram, 1e3 * kGpmIntervalS);
}

Result<std::string> try_rung(GpuRung rung, DeviceId device) {
  const GpuFacts* facts = gpu(device);
  if (!facts) return Error{fmt::format("no GPU: {}", why_no_gpu(device))};
  switch (rung) {
    case GpuRung::nvml:
      return try_nvml(*facts);
    case GpuRung::gpm:
      return try_gpm(*facts);
    case GpuRung::activity:
      return try_cupti_activity(device);
    case GpuRung::range_profiler:
      return try_cupti_range_profiler(device);
    case GpuRung::pm_sampling:
      return try_cupti_pm_sampling(device);
  }
  return Error{"not a rung"};
}

}  // namespace

std::string_view to_string(GpuRung rung) {
  constexpr std::string_view kNames[] = {"nvml", "gpm", "activity", "range_profiler", "pm_sampling"};
  return kNames[static_cast<int>(rung)];
}

std::string_view describe(GpuRung rung) {
  constexpr std::string_view kWords[] = {
      "clocks, power, temperature, energy", "utilisation of units over an interval",
      "start, end and resources of every kernel", "any counter over a range of the program",
      "counters of the whole GPU every 100 us"};
  return kWords[static_cast<int>(rung)];
}

GpuRungState probe_gpu_profiling(GpuRung rung, DeviceId device) {
  const Result<std::string> tried = try_rung(rung, device);
  if (!tried) return {.rung = rung, .why_not = tried.error().message, .seen = {}};
  return {.rung = rung, .why_not = {}, .seen = *tried};
}

bool wants_own_process(GpuRung rung) { return rung != GpuRung::nvml && rung != GpuRung::gpm; }

std::optional<GpuRung> gpu_rung_named(std::string_view name) {
  for (const GpuRung rung : kGpuRungs)
    if (to_string(rung) == name) return rung;
  return std::nullopt;
}

nlohmann::json to_json(const GpuRungState& state) {
  return {{"rung", to_string(state.rung)},
          {"description", describe(state.rung)},
          {"available", !state.why_not},
          {"why_not", or_null(state.why_not)},
          {"seen", state.seen}};
}

Result<GpuRungState> gpu_rung_from_json(const nlohmann::json& json) {
  try {
    return GpuRungState{.rung    = enum_from_json(json.at("rung"), kGpuRungs),
                        .why_not = optional_from_json<std::string>(json.at("why_not")),
                        .seen    = json.at("seen")};
  } catch (const std::exception& problem) {
    return Error{fmt::format("not the JSON of a profiling rung: {}", problem.what())};
  }
}

}  // namespace fathom::machine
