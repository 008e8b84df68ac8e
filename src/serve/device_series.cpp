#include "serve/device_series.h"

#include <algorithm>
#include <functional>
#include <string>

namespace fathom::serve {
namespace {

constexpr double kMib        = 1 << 20;
constexpr uint64_t kAllKnown = 0x1FF;  // the clock event reasons that have names

Labels labels_of(const GpuReading& gpu) {
  Labels labels;
  if (gpu.index) labels.push_back({"gpu", std::to_string(*gpu.index)});
  labels.push_back({"UUID", gpu.uuid});
  if (gpu.index) labels.push_back({"device", "nvidia" + std::to_string(*gpu.index)});
  if (!gpu.name.empty()) labels.push_back({"modelName", gpu.name});
  return labels;
}

// A gauge or a counter of the DCGM exporter, in its units.
struct DcgmField {
  const char *name, *help;
  bool counter;
  std::optional<double> (*value)(const GpuReading&);
};

template <class Of, class Member>
std::optional<double> scaled(const std::optional<Of>& of, Member member, double factor) {
  if (!of) return std::nullopt;
  return factor * static_cast<double>(std::invoke(member, *of));
}

std::optional<double> scaled(std::optional<double> value, double factor) {
  if (!value) return std::nullopt;
  return factor * *value;
}

using machine::GpuActivity;
using machine::GpuMemory;

constexpr DcgmField kFields[] = {
    {"DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %): time in which a kernel ran.", false,
     [](const GpuReading& gpu) { return scaled(gpu.activity, &GpuActivity::kernels, 100); }},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %): time in which memory was read or written.",
     false, [](const GpuReading& gpu) { return scaled(gpu.activity, &GpuActivity::memory, 100); }},
    {"DCGM_FI_DEV_FB_USED", "Memory used (in MiB).", false,
     [](const GpuReading& gpu) { return scaled(gpu.memory, &GpuMemory::used_bytes, 1 / kMib); }},
    {"DCGM_FI_DEV_FB_FREE", "Memory free (in MiB).", false,
     [](const GpuReading& gpu) { return scaled(gpu.memory, &GpuMemory::free_bytes, 1 / kMib); }},
    {"DCGM_FI_DEV_FB_TOTAL", "Memory in all (in MiB).", false,
     [](const GpuReading& gpu) { return scaled(gpu.memory, &GpuMemory::total_bytes, 1 / kMib); }},
    {"DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", false,
     [](const GpuReading& gpu) { return gpu.sensors.power_w; }},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since the driver was loaded (in mJ).", true,
     [](const GpuReading& gpu) { return scaled(gpu.sensors.energy_j, 1e3); }},
    {"DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", false,
     [](const GpuReading& gpu) { return gpu.sensors.temperature_c; }},
    {"DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", false,
     [](const GpuReading& gpu) { return scaled(gpu.sensors.sm_clock_hz, 1e-6); }},
    {"DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", false,
     [](const GpuReading& gpu) { return scaled(gpu.sensors.memory_clock_hz, 1e-6); }},
    {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "Why clocks are below their maximum: NVML's bits.", false,
     [](const GpuReading& gpu) -> std::optional<double> {
       if (const auto& bits = gpu.sensors.clock_event_reasons) return static_cast<double>(*bits);
       return std::nullopt;
     }}};

// Families without a series are left out.
void add_gpus(const GpuMonitor::Scrape& scrape, Exposition& to) {
  to.counter({"fathom_gpu_scrapes_late"}, "Scrapes without GPUs, because NVML did not answer in time.",
             scrape.late);
  if (!scrape.readings) return;
  const std::vector<GpuReading>& gpus = scrape.readings->gpus;

  for (const DcgmField& field : kFields) {
    std::vector<Series> series;
    for (const GpuReading& gpu : gpus)
      if (const auto value = field.value(gpu)) series.push_back({labels_of(gpu), *value});
    if (series.empty()) continue;
    if (field.counter)
      to.counters_named(field.name, field.help, series);
    else
      to.gauges({field.name}, field.help, series);
  }

  std::vector<Series> up, events, sent, received;
  for (const GpuReading& gpu : gpus) {
    const Labels labels = labels_of(gpu);
    const auto with     = [&labels](const char* name, const std::string& value) {
      Labels more = labels;
      more.push_back({name, value});
      return more;
    };
    up.push_back({labels, gpu.up() ? 1. : 0.});
    if (gpu.sensors.clock_event_reasons) {
      const auto now = machine::clock_event_names(*gpu.sensors.clock_event_reasons);
      for (const std::string& reason : machine::clock_event_names(kAllKnown))
        events.push_back(
            {with("reason", reason), std::find(now.begin(), now.end(), reason) != now.end() ? 1. : 0.});
    }
    if (gpu.nvlink) {
      sent.push_back({labels, static_cast<double>(gpu.nvlink->sent_bytes)});
      received.push_back({labels, static_cast<double>(gpu.nvlink->received_bytes)});
    }
  }
  if (!up.empty())
    to.gauges({"fathom_gpu_up"}, "1: the GPU answers NVML. 0: it is lost, or NVML does not work.", up);
  if (!events.empty())
    to.gauges({"fathom_gpu_clock_event"}, "1: clocks are now held below their maximum for this reason.",
              events);
  if (!sent.empty()) {
    to.counters({"fathom_gpu_nvlink_sent_bytes"}, "Payload over all NVLinks of the GPU.", sent);
    to.counters({"fathom_gpu_nvlink_received_bytes"}, "Payload over all NVLinks of the GPU.", received);
  }
}

void add_energy(const GpuMonitor::Scrape* gpus, const std::vector<machine::CpuEnergy>& cpus, Exposition& to) {
  std::vector<Series> joules;
  if (gpus && gpus->readings)
    for (const GpuReading& gpu : gpus->readings->gpus)
      if (gpu.sensors.energy_j)
        joules.push_back({{{"kind", "gpu"}, {"device", gpu.uuid}}, *gpu.sensors.energy_j});
  for (const machine::CpuEnergy& cpu : cpus)
    joules.push_back({{{"kind", cpu.memory ? "dram" : "cpu"}, {"device", cpu.zone}}, cpu.joules});
  if (!joules.empty())
    to.counters({"fathom_energy_joules"},
                "Energy of whole devices, whoever uses them. Their rate is the power; over the rate of "
                "fathom_generated_tokens_total it is the energy of a token.",
                joules);
}

}  // namespace

void add_device_series(const GpuMonitor::Scrape* gpus, const std::vector<machine::CpuEnergy>& cpus,
                       Exposition& to) {
  if (gpus) add_gpus(*gpus, to);
  add_energy(gpus, cpus, to);
}

}  // namespace fathom::serve
