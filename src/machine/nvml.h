// The GPU's sensors by NVML, the driver's management library: clocks, power, temperature, energy, clock event
// reasons, other processes on the GPU. Opened at run time and compiled into every build; without a driver,
// every call returns the reason. NVML is thread-safe, and so is all of this.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace fathom::machine {

// A field is absent where the GPU, driver or virtual machine does not report it. Reading takes tens of
// microseconds to a few milliseconds; the GPU refreshes most sensors every 10 to 100 ms.
struct GpuSensors {
  std::optional<double> sm_clock_hz, memory_clock_hz;
  std::optional<double> power_w;  // instantaneous (driver 535 and later), otherwise over the last second
  std::optional<double> temperature_c;
  std::optional<double> energy_j;  // since the driver was loaded; meaningful over 100 ms and more
  std::optional<uint64_t> clock_event_reasons;  // bits, for the functions below
  bool operator==(const GpuSensors&) const = default;
};

// Names of the reasons: "SW power cap"; "bit 12" for an unknown bit.
std::vector<std::string> clock_event_names(uint64_t reasons);
// The GPU slowed down for heat or current: times measured meanwhile say nothing about the code.
bool is_throttled(uint64_t reasons);
// The GPU is at its power limit: normal for large tensor-core work.
bool is_power_capped(uint64_t reasons);

struct GpuMemory {
  // used: without what the driver reserves, where it says so (driver 510 and later). Then the sum of free and
  // used is below the total.
  int64_t total_bytes = 0, free_bytes = 0, used_bytes = 0;
};

// Shares, in [0, 1], of the driver's last sample period (1/6 to 1 s) in which at least one kernel ran, and in
// which the GPU's memory was read or written. 1 does not mean that the GPU could do no more.
struct GpuActivity {
  double kernels = 0, memory = 0;
};

struct GpuProcess {
  int64_t pid = 0;                      // in the driver's namespace, not a container's
  std::optional<int64_t> memory_bytes;  // on the GPU
};

// What a GPU has sent and received over all its NVLinks, payload alone, in steps of 1 KiB.
struct NvlinkTraffic {
  int64_t sent_bytes = 0, received_bytes = 0;
};

class NvmlGpu {
 public:
  std::string name() const;
  std::string uuid() const;
  std::optional<int> index() const;             // NVML's, which is nvidia-smi's; not CUDA's
  std::optional<int64_t> memory_bytes() const;  // in all
  std::optional<GpuMemory> memory() const;
  std::optional<GpuActivity> activity() const;
  std::optional<double> power_limit_w() const;
  std::optional<int> pcie_generation() const, pcie_lanes() const;  // the maximum of card and slot

  GpuSensors sensors() const;
  // Since some time in the past: take the difference of two. None without NVLink, and where the driver keeps
  // the counters to itself.
  std::optional<NvlinkTraffic> nvlink_traffic() const;
  // Every process with a compute context on this GPU, including this one.
  Result<std::vector<GpuProcess>> processes() const;

  // Utilisation of units by GPM (Hopper and later), which needs no profiling permission: shares in [0, 1]
  // between two samples `interval_s` apart. The call sleeps in between.
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
// Every GPU of the driver, whether CUDA sees it or not.
Result<std::vector<NvmlGpu>> nvml_gpus();
std::string nvml_driver_version();  // "580.159.04"; empty where NVML does not load

}  // namespace fathom::machine
