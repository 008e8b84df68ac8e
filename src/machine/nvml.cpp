#include "machine/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <type_traits>

namespace fathom::machine {
namespace {

// ---- The parts of nvml.h in use; the toolkit of CUDA 13 lacks that header.

constexpr int kSuccess             = 0;
constexpr int kInsufficientSize    = 7;
constexpr int kClockSm             = 1;
constexpr int kClockMemory         = 2;
constexpr int kTemperatureGpu      = 0;
constexpr unsigned kPowerInstant   = 186;  // field, milliwatts
constexpr unsigned kNvlinkSent     = 138;  // fields, KiB of payload
constexpr unsigned kNvlinkReceived = 139;
constexpr unsigned kAllLinks       = ~0u;  // their scope
constexpr uint64_t kNotAvailable   = ~uint64_t{0};
constexpr unsigned kGpmVersion     = 1;
constexpr unsigned kGpmSmUtil      = 2;  // percent, all three
constexpr unsigned kGpmTensorUtil  = 5;
constexpr unsigned kGpmDramUtil    = 10;

struct NvmlMemory {
  unsigned long long total, free, used;  // used: with what the driver reserves
};
struct NvmlMemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
constexpr unsigned kMemoryVersion = sizeof(NvmlMemoryV2) | 2u << 24;
struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
struct NvmlField {
  unsigned id, scope;
  long long timestamp, latency_us;
  int type, status;
  union {
    double d;
    unsigned u;
    unsigned long ul;
    unsigned long long ull;
  } value;
};
struct GpmSupport {
  unsigned version, is_supported;
};
struct GpmMetric {
  unsigned id;
  int status;
  double value;
  const char *short_name, *long_name, *unit;
};
// The header's array grows from version to version; NVML reads only `count` entries.
struct GpmQuery {
  unsigned version, count;
  void *first, *second;
  GpmMetric metrics[512];
};

struct ReasonName {
  uint64_t bit;
  const char* name;
};
constexpr uint64_t kSwPowerCap = 0x4, kHwSlowdown = 0x8, kSwThermal = 0x20, kHwThermal = 0x40,
                   kPowerBrake  = 0x80;
constexpr ReasonName kReasons[] = {{0x1, "idle"},
                                   {0x2, "clocks set by an application"},
                                   {kSwPowerCap, "SW power cap"},
                                   {kHwSlowdown, "HW slowdown"},
                                   {0x10, "sync boost"},
                                   {kSwThermal, "SW thermal slowdown"},
                                   {kHwThermal, "HW thermal slowdown"},
                                   {kPowerBrake, "HW power brake"},
                                   {0x100, "display clocks"}};

// NVML's functions; null where this driver lacks one.
struct Library {
  std::string why_not;  // empty: open
  int (*init)()                                    = nullptr;
  const char* (*error_string)(int)                 = nullptr;
  int (*driver_version)(char*, unsigned)           = nullptr;
  int (*count)(unsigned*)                          = nullptr;
  int (*by_index)(unsigned, void**)                = nullptr;
  int (*by_uuid)(const char*, void**)              = nullptr;
  int (*name)(void*, char*, unsigned)              = nullptr;
  int (*uuid)(void*, char*, unsigned)              = nullptr;
  int (*index)(void*, unsigned*)                   = nullptr;
  int (*memory)(void*, NvmlMemory*)                = nullptr;
  int (*memory_v2)(void*, NvmlMemoryV2*)           = nullptr;
  int (*utilization)(void*, NvmlUtilization*)      = nullptr;
  int (*clock)(void*, int, unsigned*)              = nullptr;
  int (*power)(void*, unsigned*)                   = nullptr;  // milliwatts
  int (*power_limit)(void*, unsigned*)             = nullptr;
  int (*fields)(void*, int, NvmlField*)            = nullptr;
  int (*temperature)(void*, int, unsigned*)        = nullptr;
  int (*energy)(void*, unsigned long long*)        = nullptr;  // millijoules
  int (*event_reasons)(void*, unsigned long long*) = nullptr;
  int (*pcie_generation)(void*, unsigned*)         = nullptr;
  int (*pcie_lanes)(void*, unsigned*)              = nullptr;
  int (*processes)(void*, unsigned*, NvmlProcess*) = nullptr;
  int (*gpm_support)(void*, GpmSupport*)           = nullptr;
  int (*gpm_alloc)(void**)                         = nullptr;
  int (*gpm_free)(void*)                           = nullptr;
  int (*gpm_sample)(void*, void*)                  = nullptr;
  int (*gpm_metrics)(GpmQuery*)                    = nullptr;

  std::string words(int status) const {
    const char* text = error_string ? error_string(status) : nullptr;
    return text ? text : fmt::format("error {}", status);
  }
};

Library open_library() {
  Library nvml;
  void* const handle = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!handle) {
    nvml.why_not = "libnvidia-ml.so.1 does not load: no NVIDIA driver is installed, or its folder is unknown";
    return nvml;
  }
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
  };
  find(nvml.init, "nvmlInit_v2");
  find(nvml.error_string, "nvmlErrorString");
  find(nvml.driver_version, "nvmlSystemGetDriverVersion");
  find(nvml.count, "nvmlDeviceGetCount_v2");
  find(nvml.by_index, "nvmlDeviceGetHandleByIndex_v2");
  find(nvml.by_uuid, "nvmlDeviceGetHandleByUUID");
  find(nvml.name, "nvmlDeviceGetName");
  find(nvml.uuid, "nvmlDeviceGetUUID");
  find(nvml.index, "nvmlDeviceGetIndex");
  find(nvml.memory, "nvmlDeviceGetMemoryInfo");
  find(nvml.memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  find(nvml.utilization, "nvmlDeviceGetUtilizationRates");
  find(nvml.clock, "nvmlDeviceGetClockInfo");
  find(nvml.power, "nvmlDeviceGetPowerUsage");
  find(nvml.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  find(nvml.fields, "nvmlDeviceGetFieldValues");
  find(nvml.temperature, "nvmlDeviceGetTemperature");
  find(nvml.energy, "nvmlDeviceGetTotalEnergyConsumption");
  find(nvml.event_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  if (!nvml.event_reasons)  // its name before driver 535
    find(nvml.event_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(nvml.pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  find(nvml.pcie_lanes, "nvmlDeviceGetMaxPcieLinkWidth");
  find(nvml.processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  find(nvml.gpm_support, "nvmlGpmQueryDeviceSupport");
  find(nvml.gpm_alloc, "nvmlGpmSampleAlloc");
  find(nvml.gpm_free, "nvmlGpmSampleFree");
  find(nvml.gpm_sample, "nvmlGpmSampleGet");
  find(nvml.gpm_metrics, "nvmlGpmMetricsGet");
  if (!nvml.init || !nvml.by_uuid || !nvml.by_index || !nvml.count)
    nvml.why_not = "libnvidia-ml.so.1 lacks functions every driver since 2014 has";
  else if (const int status = nvml.init(); status != kSuccess)
    nvml.why_not = fmt::format("nvmlInit: {}", nvml.words(status));
  return nvml;
}

// Opened at the first use and never closed nor destroyed: that would race at exit with other threads' calls.
const Library& library() {
  static const Library& nvml = *new Library(open_library());
  return nvml;
}

template <class Value>
std::optional<Value> ask(int (*function)(void*, Value*), void* gpu) {
  Value value{};
  if (!function || function(gpu, &value) != kSuccess) return std::nullopt;
  return value;
}

std::optional<unsigned> ask(int (*function)(void*, int, unsigned*), void* gpu, int which) {
  unsigned value = 0;
  if (!function || function(gpu, which, &value) != kSuccess) return std::nullopt;
  return value;
}

template <class Value>
std::optional<double> scaled(std::optional<Value> value, double unit) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value) * unit;
}

std::string text_of(int (*function)(void*, char*, unsigned), void* gpu) {
  char text[96] = {};
  return function && function(gpu, text, sizeof text) == kSuccess ? text : "";
}

std::optional<int> whole(std::optional<unsigned> value) {
  if (!value) return std::nullopt;
  return static_cast<int>(*value);
}

std::optional<double> power_now_w(void* gpu) {
  const Library& nvml = library();
  NvmlField field{.id = kPowerInstant};
  if (nvml.fields && nvml.fields(gpu, 1, &field) == kSuccess && field.status == kSuccess && field.value.u > 0)
    return 1e-3 * field.value.u;
  return scaled(ask(nvml.power, gpu), 1e-3);
}

Error gpm_refused(std::string_view step, int status) {
  return {fmt::format("GPM, {}: {}", step, library().words(status))};
}

}  // namespace

std::vector<std::string> clock_event_names(uint64_t reasons) {
  std::vector<std::string> names;
  for (const ReasonName& reason : kReasons)
    if (reasons & reason.bit) names.emplace_back(reason.name);
  for (int bit = 9; bit < 64; ++bit)
    if (reasons >> bit & 1) names.push_back(fmt::format("bit {}", bit));
  return names;
}

bool is_throttled(uint64_t reasons) {
  return (reasons & (kHwSlowdown | kSwThermal | kHwThermal | kPowerBrake)) != 0;
}

bool is_power_capped(uint64_t reasons) { return (reasons & kSwPowerCap) != 0; }

std::string NvmlGpu::name() const { return text_of(library().name, handle_); }
std::string NvmlGpu::uuid() const { return text_of(library().uuid, handle_); }

std::optional<int> NvmlGpu::index() const { return whole(ask(library().index, handle_)); }

std::optional<GpuMemory> NvmlGpu::memory() const {
  const Library& nvml = library();
  const auto bytes    = [](unsigned long long value) { return static_cast<int64_t>(value); };
  if (NvmlMemoryV2 memory{.version = kMemoryVersion};
      nvml.memory_v2 && nvml.memory_v2(handle_, &memory) == kSuccess)
    return GpuMemory{bytes(memory.total), bytes(memory.free), bytes(memory.used)};
  const std::optional<NvmlMemory> memory = ask(nvml.memory, handle_);
  if (!memory) return std::nullopt;
  return GpuMemory{bytes(memory->total), bytes(memory->free), bytes(memory->used)};
}

std::optional<int64_t> NvmlGpu::memory_bytes() const {
  const std::optional<GpuMemory> memory = this->memory();
  if (!memory) return std::nullopt;
  return memory->total_bytes;
}

std::optional<GpuActivity> NvmlGpu::activity() const {
  const std::optional<NvmlUtilization> percent = ask(library().utilization, handle_);
  if (!percent) return std::nullopt;
  return GpuActivity{.kernels = percent->gpu / 100., .memory = percent->memory / 100.};
}

std::optional<double> NvmlGpu::power_limit_w() const {
  return scaled(ask(library().power_limit, handle_), 1e-3);
}
std::optional<int> NvmlGpu::pcie_generation() const { return whole(ask(library().pcie_generation, handle_)); }
std::optional<int> NvmlGpu::pcie_lanes() const { return whole(ask(library().pcie_lanes, handle_)); }

GpuSensors NvmlGpu::sensors() const {
  const Library& nvml = library();
  GpuSensors sensors{.sm_clock_hz         = scaled(ask(nvml.clock, handle_, kClockSm), 1e6),
                     .memory_clock_hz     = scaled(ask(nvml.clock, handle_, kClockMemory), 1e6),
                     .power_w             = power_now_w(handle_),
                     .temperature_c       = scaled(ask(nvml.temperature, handle_, kTemperatureGpu), 1),
                     .energy_j            = scaled(ask(nvml.energy, handle_), 1e-3),
                     .clock_event_reasons = {}};
  if (const auto reasons = ask(nvml.event_reasons, handle_)) sensors.clock_event_reasons = *reasons;
  return sensors;
}

Result<std::vector<GpuProcess>> NvmlGpu::processes() const {
  const Library& nvml = library();
  if (!nvml.processes) return Error{"this driver does not list processes"};
  std::vector<NvmlProcess> found(32);
  unsigned count = 0;
  int status     = kInsufficientSize;
  for (int tries = 0; tries < 4 && status == kInsufficientSize; ++tries) {
    count  = static_cast<unsigned>(found.size());
    status = nvml.processes(handle_, &count, found.data());
    if (status == kInsufficientSize) found.resize(2 * std::max<size_t>(count, found.size()));
  }
  if (status != kSuccess) return Error{fmt::format("the list of processes: {}", nvml.words(status))};
  std::vector<GpuProcess> processes;
  for (unsigned i = 0; i < count; ++i) {
    GpuProcess process{.pid = found[i].pid, .memory_bytes = {}};
    if (found[i].memory != kNotAvailable) process.memory_bytes = static_cast<int64_t>(found[i].memory);
    processes.push_back(process);
  }
  return processes;
}

std::optional<NvlinkTraffic> NvmlGpu::nvlink_traffic() const {
  const Library& nvml = library();
  NvmlField fields[2] = {{.id = kNvlinkSent, .scope = kAllLinks},
                         {.id = kNvlinkReceived, .scope = kAllLinks}};
  if (!nvml.fields || nvml.fields(handle_, 2, fields) != kSuccess) return std::nullopt;
  for (const NvmlField& field : fields)
    if (field.status != kSuccess) return std::nullopt;
  return NvlinkTraffic{.sent_bytes     = static_cast<int64_t>(fields[0].value.ull) * 1024,
                       .received_bytes = static_cast<int64_t>(fields[1].value.ull) * 1024};
}

Result<NvmlGpu::Utilisation> NvmlGpu::utilisation(double interval_s) const {
  const Library& nvml = library();
  if (!nvml.gpm_support || !nvml.gpm_alloc || !nvml.gpm_free || !nvml.gpm_sample || !nvml.gpm_metrics)
    return Error{"this driver has no GPM: it came with 520"};
  GpmSupport support{.version = kGpmVersion, .is_supported = 0};
  if (const int status = nvml.gpm_support(handle_, &support); status != kSuccess)
    return gpm_refused("is it supported", status);
  if (!support.is_supported) return Error{"this GPU has no GPM: it came with Hopper"};

  using Sample         = std::unique_ptr<void, int (*)(void*)>;
  const auto allocated = [&] {
    void* sample = nullptr;
    return Sample(nvml.gpm_alloc(&sample) == kSuccess ? sample : nullptr, nvml.gpm_free);
  };
  const Sample first = allocated(), second = allocated();
  if (!first || !second) return Error{"GPM gives no memory for samples"};
  if (const int status = nvml.gpm_sample(handle_, first.get()); status != kSuccess)
    return gpm_refused("first sample", status);
  std::this_thread::sleep_for(std::chrono::duration<double>(interval_s));
  if (const int status = nvml.gpm_sample(handle_, second.get()); status != kSuccess)
    return gpm_refused("second sample", status);

  const auto query     = std::make_unique<GpmQuery>();
  query->version       = kGpmVersion;
  query->count         = 3;
  query->first         = first.get();
  query->second        = second.get();
  query->metrics[0].id = kGpmSmUtil;
  query->metrics[1].id = kGpmTensorUtil;
  query->metrics[2].id = kGpmDramUtil;
  if (const int status = nvml.gpm_metrics(query.get()); status != kSuccess)
    return gpm_refused("metrics", status);
  for (int i = 0; i < 3; ++i)
    if (query->metrics[i].status != kSuccess) return gpm_refused("a metric", query->metrics[i].status);
  return Utilisation{.sm     = query->metrics[0].value / 100,
                     .tensor = query->metrics[1].value / 100,
                     .dram   = query->metrics[2].value / 100};
}

Result<NvmlGpu> nvml_gpu(const std::string& uuid) {
  const Library& nvml = library();
  if (!nvml.why_not.empty()) return Error{nvml.why_not};
  void* handle = nullptr;
  if (const int status = nvml.by_uuid(uuid.c_str(), &handle); status != kSuccess)
    return Error{fmt::format("NVML knows no GPU {}: {}", uuid, nvml.words(status))};
  return NvmlGpu(handle);
}

Result<std::vector<NvmlGpu>> nvml_gpus() {
  const Library& nvml = library();
  if (!nvml.why_not.empty()) return Error{nvml.why_not};
  unsigned count = 0;
  if (const int status = nvml.count(&count); status != kSuccess)
    return Error{fmt::format("NVML does not count GPUs: {}", nvml.words(status))};
  std::vector<NvmlGpu> gpus;
  for (unsigned i = 0; i < count; ++i)
    if (void* handle = nullptr; nvml.by_index(i, &handle) == kSuccess) gpus.push_back(NvmlGpu(handle));
  return gpus;
}

std::string nvml_driver_version() {
  const Library& nvml = library();
  char text[96]       = {};
  if (!nvml.why_not.empty() || !nvml.driver_version) return {};
  return nvml.driver_version(text, sizeof text) == kSuccess ? text : "";
}

}  // namespace fathom::machine
