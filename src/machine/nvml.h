// The GPU's own sensors by NVML, the driver's management library: clocks, power, temperature, energy, why the
// clocks are where they are, who else is on the GPU. Opened at run time and compiled into every build; where
// there is no driver, every question has a reason for an answer. NVML is thread-safe, and so is all of this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace fathom::machine {

// Absent: this GPU, driver or virtual machine does not say. Reading takes from tens of microseconds to a few
// milliseconds, and the GPU itself refreshes most of it every 10 to 100 ms.
struct GpuSensors {
  std::optional<double> sm_clock_hz, memory_clock_hz;
  std::optional<double> power_w;  // now where the driver has it (535 and later), else over the last second
  std::optional<double> temperature_c;
  std::optional<double> energy_j;  // since the driver was loaded; meaningful over 100 ms and more
  std::optional<uint64_t> clock_event_reasons;  // bits, for the functions below
  bool operator==(const GpuSensors&) const = default;
};

// The reasons in words: "SW power cap". An unknown bit is "bit 12". No bit: empty.
std::vector<std::string> clock_event_names(uint64_t reasons);
// The GPU was too hot or short of current: a time taken now says nothing of the code.
bool is_throttled(uint64_t reasons);
// It kept to its power limit: normal for large tensor-core work.
bool is_power_capped(uint64_t reasons);

struct GpuProcess {
  int64_t pid = 0;                      // as the driver sees it: of another namespace inside a container
  std::optional<int64_t> memory_bytes;  // on the GPU
};

class NvmlGpu {
 public:
  std::string name() const;
  std::string uuid() const;
  std::optional<int64_t> memory_bytes() const;
  std::optional<double> power_limit_w() const;
  std::optional<int> pcie_generation() const, pcie_lanes() const;  // the most card and slot agree on

  GpuSensors sensors() const;
  // Every process with a compute context on it, ours too.
  Result<std::vector<GpuProcess>> processes() const;

  // Utilisation of units by GPM, which needs no profiler's rights (Hopper and later): shares of [0, 1]
  // between two samples `interval_s` apart, in which this call sleeps.
  struct Utilisation {
    double sm = 0, tensor = 0, dram = 0;
  };
  Result<Utilisation> utilisation(double interval_s) const;

 private:
  friend Result<NvmlGpu> nvml_gpu(const std::string& uuid);
  friend Result<std::vector<NvmlGpu>> nvml_gpus();
  explicit NvmlGpu(void* handle) : handle_(handle) {}
  void* handle_;  // NVML's, valid as long as the process
};

// By the UUID of machine/gpu.h: CUDA and NVML number GPUs differently.
Result<NvmlGpu> nvml_gpu(const std::string& uuid);
// Every GPU the driver has, whether CUDA may see it or not.
Result<std::vector<NvmlGpu>> nvml_gpus();
std::string nvml_driver_version();  // "580.159.04"; empty where NVML does not load

}  // namespace fathom::machine
