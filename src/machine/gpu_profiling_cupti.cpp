#include "machine/gpu_profiling_cupti.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "cuda/check.h"
#include "cuda/cupti.h"
#include "cuda/device.h"
#include "cuda/device_guard.h"
#include "cuda/per_device.h"
#include "machine/counter_config.h"
#include "machine/gpu_ceiling_kernels.h"
#include "machine/range_profiler.h"

namespace fathom::machine {
namespace {

constexpr int64_t kReadBytes     = 256 << 20;  // of the kernel whose bytes are counted
constexpr uint64_t kSampleNs     = 100'000;
constexpr int kSampledReads      = 100;
constexpr uint32_t kMaxSamples   = 10'000;
constexpr size_t kHardwareBuffer = 64 << 20;

// One pass on Hopper and its neighbours; the second set is for chips with other names for DRAM traffic.
const std::vector<std::vector<std::string>> kMetricSets = {
    {"dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum", "sm__cycles_elapsed.max",
     "sm__warps_active.avg.pct_of_peak_sustained_active",
     "smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__warps_eligible.avg.per_cycle_active"},
    {"dram__bytes_op_read.sum", "dram__bytes_op_write.sum", "gpu__time_duration.sum",
     "sm__cycles_elapsed.max", "sm__warps_active.avg.pct_of_peak_sustained_active",
     "smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__warps_eligible.avg.per_cycle_active"}};
const std::vector<std::vector<std::string>> kSampledSets = {
    {"dram__bytes_read.sum", "dram__bytes_write.sum"},
    {"dram__bytes_op_read.sum"},
    {"gr__cycles_active.avg.pct_of_peak_sustained_elapsed"}};

class AtEnd {  // of a scope, however it is left
 public:
  explicit AtEnd(std::function<void()> undo) : undo_(std::move(undo)) {}
  ~AtEnd() { undo_(); }
  AtEnd(const AtEnd&)            = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  std::function<void()> undo_;
};

// A read of known length on the device's stream.
class KnownRead {
 public:
  explicit KnownRead(DeviceId id) : device_(device(id)), data_(device_.allocate(kReadBytes + 256)) {
    device_.set_words(data_, kReadBytes, 0x3F800000u);
    run();  // loads the kernel
    device_.synchronize();
  }
  ~KnownRead() { device_.release(data_); }
  KnownRead(const KnownRead&)            = delete;
  KnownRead& operator=(const KnownRead&) = delete;

  double run() const {
    return gpu_kernels()->read(data_, kReadBytes, static_cast<std::byte*>(data_) + kReadBytes,
                               device_.stream());
  }
  void finish() const { device_.synchronize(); }

 private:
  Device& device_;
  void* data_;
};

using Probe = Result<std::string> (*)(const Cupti&, const KnownRead&);

Result<std::string> attempt(DeviceId device, Probe probe) {
  // CUPTI serves one client, and a tool that was injected into the process is that client.
  for (const char* variable : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"})
    if (const char* value = std::getenv(variable); value && *value)
      return Error{fmt::format("a profiler is attached already: {} is set", variable)};
  const auto cupti = Cupti::open();
  if (!cupti) return cupti.error();
  if (!find_device(device)) return Error{why_no_device(device)};
  try {
    const DeviceGuard current(device);
    return probe(**cupti, KnownRead(device));
  } catch (const std::exception& problem) {
    return Error{problem.what()};
  }
}

// ---- Activity: CUPTI asks for buffers, fills them and hands them back, on threads of its own choosing.

constexpr size_t kActivityBuffer = 1 << 20;
double longest_kernel_ns         = 0;  // written before cuptiActivityFlushAll() returns, read after
int registers_of_longest         = 0;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer      = static_cast<uint8_t*>(std::aligned_alloc(8, kActivityBuffer));
  *size        = *buffer ? kActivityBuffer : 0;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const auto cupti       = Cupti::open();
  CUpti_Activity* record = nullptr;
  while (buffer && (*cupti)->cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    const auto ns      = static_cast<double>(kernel->end - kernel->start);
    if (ns <= longest_kernel_ns) continue;
    longest_kernel_ns    = ns;
    registers_of_longest = kernel->registersPerThread;
  }
  std::free(buffer);
}

Result<std::string> probe_activity(const Cupti& cupti, const KnownRead& read) {
  FATHOM_CUPTI(cupti, ActivityRegisterCallbacks, give_buffer, take_buffer);
  FATHOM_CUPTI(cupti, ActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  {
    const AtEnd disable([&] { (void)cupti.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL); });
    read.run();
    read.finish();
    FATHOM_CUPTI(cupti, ActivityFlushAll, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  if (longest_kernel_ns <= 0) return Error{"tracing was switched on, but no kernel was recorded"};
  return fmt::format("a kernel of {:.1f} us with {} registers a thread", longest_kernel_ns / 1e3,
                     registers_of_longest);
}

// ---- Counters

// Of the first of these sets that the chip knows: one unknown name fails a whole set.
Result<CounterConfig> first_known(const Cupti& cupti, CUpti_ProfilerType type, const std::string& chip,
                                  const std::vector<std::vector<std::string>>& sets) {
  for (size_t i = 0; i + 1 < sets.size(); ++i)
    if (auto config = CounterConfig::create(cupti, chip, sets[i], {}, type)) return config;
  return CounterConfig::create(cupti, chip, sets.back(), {}, type);
}

Result<std::string> probe_range_profiler(const Cupti& cupti, const KnownRead& read) {
  const auto gpu = profiled_gpu(cupti, CUPTI_PROFILER_RANGE_PROFILING);
  if (!gpu) return gpu.error();
  auto config = first_known(cupti, CUPTI_PROFILER_TYPE_RANGE_PROFILER, gpu->chip, kMetricSets);
  if (!config) return config.error();
  if (config->passes() != 1)
    return Error{
        fmt::format("the smallest set takes {} passes on this chip, and one is tried", config->passes())};

  RangeProfiler profiler(cupti);
  if (const auto enabled = profiler.enable(gpu->context); !enabled) return enabled.error();
  if (const auto configured = profiler.configure(*config, 1); !configured) return configured.error();
  if (const auto started = profiler.start(); !started) return started.error();
  const double bytes = read.run();
  read.finish();
  if (const auto stopped = profiler.stop(); !stopped) return stopped.error();
  if (const auto decoded = profiler.decode(); !decoded) return decoded.error();
  const auto values = config->values(profiler.data(), 0);
  if (!values) return values.error();

  const double counted   = values->front();
  const std::string seen = fmt::format("{:.1f} MB counted of a read of {:.1f} MB, {} metrics in one pass",
                                       counted / 1e6, bytes / 1e6, values->size());
  // The GPU counts other processes' traffic too, and part of the read may hit in L2.
  if (counted < 0.5 * bytes || counted > 2 * bytes) return Error{"the counters run but are wrong: " + seen};
  return seen;
}

Result<std::string> probe_pm_sampling(const Cupti& cupti, const KnownRead& read) {
  const auto gpu = profiled_gpu(cupti, CUPTI_PROFILER_PM_SAMPLING);
  if (!gpu) return gpu.error();
  auto config = first_known(cupti, CUPTI_PROFILER_TYPE_PM_SAMPLING, gpu->chip, kSampledSets);
  if (!config) return config.error();
  std::vector<const char*> names = config->name_pointers();

  FATHOM_CUPTI_PARAMS(CUpti_PmSampling_Enable_Params, enable);
  enable.deviceIndex = static_cast<size_t>(current_gpu());
  FATHOM_CUPTI(cupti, PmSamplingEnable, &enable);
  CUpti_PmSampling_Object* const sampler = enable.pPmSamplingObject;
  const AtEnd disable([&cupti, sampler] {
    FATHOM_CUPTI_PARAMS(CUpti_PmSampling_Disable_Params, params);
    params.pPmSamplingObject = sampler;
    (void)cupti.cuptiPmSamplingDisable(&params);
  });

  FATHOM_CUPTI_PARAMS(CUpti_PmSampling_SetConfig_Params, configure);
  configure.pPmSamplingObject  = sampler;
  configure.configSize         = config->image().size();
  configure.pConfig            = config->image().data();
  configure.hardwareBufferSize = kHardwareBuffer;
  configure.samplingInterval   = kSampleNs;
  configure.triggerMode        = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
  configure.hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
  FATHOM_CUPTI(cupti, PmSamplingSetConfig, &configure);

  FATHOM_CUPTI_PARAMS(CUpti_PmSampling_GetCounterDataSize_Params, size);
  size.pPmSamplingObject = sampler;
  size.pMetricNames      = names.data();
  size.numMetrics        = names.size();
  size.maxSamples        = kMaxSamples;
  FATHOM_CUPTI(cupti, PmSamplingGetCounterDataSize, &size);
  std::vector<uint8_t> counted(size.counterDataSize);

  FATHOM_CUPTI_PARAMS(CUpti_PmSampling_CounterDataImage_Initialize_Params, initialize);
  initialize.pPmSamplingObject = sampler;
  initialize.counterDataSize   = counted.size();
  initialize.pCounterData      = counted.data();
  FATHOM_CUPTI(cupti, PmSamplingCounterDataImageInitialize, &initialize);

  FATHOM_CUPTI_PARAMS(CUpti_PmSampling_Start_Params, start);
  start.pPmSamplingObject = sampler;
  FATHOM_CUPTI(cupti, PmSamplingStart, &start);
  for (int i = 0; i < kSampledReads; ++i) read.run();
  read.finish();
  FATHOM_CUPTI_PARAMS(CUpti_PmSampling_Stop_Params, stop);
  stop.pPmSamplingObject = sampler;
  FATHOM_CUPTI(cupti, PmSamplingStop, &stop);

  FATHOM_CUPTI_PARAMS(CUpti_PmSampling_DecodeData_Params, decode);
  decode.pPmSamplingObject    = sampler;
  decode.pCounterDataImage    = counted.data();
  decode.counterDataImageSize = counted.size();
  FATHOM_CUPTI(cupti, PmSamplingDecodeData, &decode);
  FATHOM_CUPTI_PARAMS(CUpti_PmSampling_GetCounterDataInfo_Params, info);
  info.pCounterDataImage    = counted.data();
  info.counterDataImageSize = counted.size();
  FATHOM_CUPTI(cupti, PmSamplingGetCounterDataInfo, &info);
  if (info.numCompletedSamples == 0) return Error{"sampling was switched on, but no sample arrived"};
  return fmt::format("{} samples of {} metric{}, {} us apart", info.numCompletedSamples, names.size(),
                     names.size() == 1 ? "" : "s", kSampleNs / 1000);
}

}  // namespace

Result<std::string> try_cupti_activity(DeviceId device) { return attempt(device, probe_activity); }
Result<std::string> try_cupti_range_profiler(DeviceId device) {
  return attempt(device, probe_range_profiler);
}
Result<std::string> try_cupti_pm_sampling(DeviceId device) { return attempt(device, probe_pm_sampling); }

}  // namespace fathom::machine
