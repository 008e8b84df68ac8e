#include "machine/gpu_profiling_cupti.h"

#include <cuda_runtime.h>
#include <cupti_activity.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "core/cuda.h"
#include "core/cuda_library.h"
#include "core/device.h"
#include "machine/gpu.h"
#include "machine/gpu_kernels.h"

namespace fathom::machine {
namespace {

constexpr int64_t kReadBytes     = 256 << 20;  // of the kernel whose bytes are counted
constexpr uint64_t kSampleNs     = 100'000;
constexpr int kSampledReads      = 100;
constexpr uint32_t kMostSamples  = 10'000;
constexpr size_t kHardwareBuffer = 64 << 20;

// One pass on Hopper and its neighbours; the second set is of chips that name DRAM traffic otherwise.
const std::vector<std::vector<const char*>> kMetricSets = {
    {"dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum", "sm__cycles_elapsed.max",
     "sm__warps_active.avg.pct_of_peak_sustained_active",
     "smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__warps_eligible.avg.per_cycle_active"},
    {"dram__bytes_op_read.sum", "dram__bytes_op_write.sum", "gpu__time_duration.sum",
     "sm__cycles_elapsed.max", "sm__warps_active.avg.pct_of_peak_sustained_active",
     "smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__warps_eligible.avg.per_cycle_active"}};
const std::vector<std::vector<const char*>> kSampledSets = {
    {"dram__bytes_read.sum", "dram__bytes_write.sum"},
    {"dram__bytes_op_read.sum"},
    {"gr__cycles_active.avg.pct_of_peak_sustained_elapsed"}};

#define FATHOM_CUPTI_FUNCTIONS(X)                 \
  X(cuptiGetResultString)                         \
  X(cuptiActivityRegisterCallbacks)               \
  X(cuptiActivityEnable)                          \
  X(cuptiActivityDisable)                         \
  X(cuptiActivityFlushAll)                        \
  X(cuptiActivityGetNextRecord)                   \
  X(cuptiProfilerInitialize)                      \
  X(cuptiProfilerDeviceSupported)                 \
  X(cuptiDeviceGetChipName)                       \
  X(cuptiProfilerHostInitialize)                  \
  X(cuptiProfilerHostDeinitialize)                \
  X(cuptiProfilerHostConfigAddMetrics)            \
  X(cuptiProfilerHostGetConfigImageSize)          \
  X(cuptiProfilerHostGetConfigImage)              \
  X(cuptiProfilerHostGetNumOfPasses)              \
  X(cuptiProfilerHostEvaluateToGpuValues)         \
  X(cuptiRangeProfilerEnable)                     \
  X(cuptiRangeProfilerDisable)                    \
  X(cuptiRangeProfilerGetCounterDataSize)         \
  X(cuptiRangeProfilerCounterDataImageInitialize) \
  X(cuptiRangeProfilerSetConfig)                  \
  X(cuptiRangeProfilerStart)                      \
  X(cuptiRangeProfilerPushRange)                  \
  X(cuptiRangeProfilerPopRange)                   \
  X(cuptiRangeProfilerStop)                       \
  X(cuptiRangeProfilerDecodeData)                 \
  X(cuptiPmSamplingEnable)                        \
  X(cuptiPmSamplingDisable)                       \
  X(cuptiPmSamplingSetConfig)                     \
  X(cuptiPmSamplingGetCounterDataSize)            \
  X(cuptiPmSamplingCounterDataImageInitialize)    \
  X(cuptiPmSamplingStart)                         \
  X(cuptiPmSamplingStop)                          \
  X(cuptiPmSamplingDecodeData)                    \
  X(cuptiPmSamplingGetCounterDataInfo)

struct Cupti {
  std::string why_not;  // empty: open
#define FATHOM_DECLARE(name) decltype(&::name) name = nullptr;
  FATHOM_CUPTI_FUNCTIONS(FATHOM_DECLARE)
#undef FATHOM_DECLARE
};

Cupti open_cupti() {
  Cupti cupti;
  // A tool that was injected into the process owns CUPTI's only place.
  for (const char* variable : {"CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"})
    if (const char* value = std::getenv(variable); value && *value) {
      cupti.why_not = fmt::format("a profiler is attached already: {} is set", variable);
      return cupti;
    }
  const auto library = open_cuda_library("cupti", CUDART_VERSION / 1000);
  if (!library) {
    cupti.why_not = library.error().message;
    return cupti;
  }
  // CUPTI opens these by their bare names, and they lie beside it, where the loader may not look.
  for (const char* name : {"libnvperf_host.so", "libnvperf_target.so"})
    dlopen((std::filesystem::path(library->path).parent_path() / name).c_str(), RTLD_NOW | RTLD_GLOBAL);
  const auto find = [&](auto& function, const char* symbol) {
    function = library->function<std::remove_reference_t<decltype(function)>>(symbol);
    if (!function && cupti.why_not.empty())
      cupti.why_not = fmt::format("{} has no {}: it is older than CUDA 12.6", library->path, symbol);
  };
#define FATHOM_FIND(name) find(cupti.name, #name);
  FATHOM_CUPTI_FUNCTIONS(FATHOM_FIND)
#undef FATHOM_FIND
  return cupti;
}

const Cupti& cupti() {
  static const Cupti library = open_cupti();
  return library;
}

class Refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

const char* words(CUptiResult result) {
  const char* text = nullptr;
  return cupti().cuptiGetResultString(result, &text) == CUPTI_SUCCESS && text ? text : "an unknown error";
}

void check(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return;
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      throw Refused(fmt::format(
          "counters are forbidden ({}: {}): run as root or with CAP_SYS_ADMIN, or load the driver "
          "with NVreg_RestrictProfilingToAdminUsers=0",
          call, words(result)));
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      throw Refused(fmt::format("another profiler is attached ({}: {})", call, words(result)));
    default:
      throw Refused(fmt::format("{}: {}", call, words(result)));
  }
}
#define FATHOM_TRY(call, ...) check(cupti().call(__VA_ARGS__), #call)

class AtEnd {  // of a scope, whatever happened in it
 public:
  explicit AtEnd(std::function<void()> undo) : undo_(std::move(undo)) {}
  ~AtEnd() { undo_(); }
  AtEnd(const AtEnd&)            = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  std::function<void()> undo_;
};

// A read of known length on the harness's stream.
class KnownRead {
 public:
  KnownRead() : device_(*cuda_device()), data_(device_.allocate(kReadBytes + 256)) {
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

Result<std::string> attempt(const std::function<std::string()>& probe) {
  if (!cupti().why_not.empty()) return Error{cupti().why_not};
  if (!cuda_device()) return Error{why_no_cuda_device()};
  try {
    return probe();
  } catch (const std::exception& problem) {
    return Error{problem.what()};
  }
}

// ---- Activity: CUPTI asks for buffers, fills them and hands them back, on threads of its own choosing.

constexpr size_t kActivityBuffer = 1 << 20;
double longest_kernel_ns         = 0;  // written before cuptiActivityFlushAll() returns, read after
int registers_of_longest         = 0;

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer       = static_cast<uint8_t*>(std::aligned_alloc(8, kActivityBuffer));
  *size         = *buffer ? kActivityBuffer : 0;
  *most_records = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  while (buffer && cupti().cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    const auto ns      = static_cast<double>(kernel->end - kernel->start);
    if (ns <= longest_kernel_ns) continue;
    longest_kernel_ns    = ns;
    registers_of_longest = kernel->registersPerThread;
  }
  std::free(buffer);
}

std::string probe_activity() {
  const KnownRead read;
  FATHOM_TRY(cuptiActivityRegisterCallbacks, give_buffer, take_buffer);
  FATHOM_TRY(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  {
    const AtEnd disable([] { (void)cupti().cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL); });
    read.run();
    read.finish();
    FATHOM_TRY(cuptiActivityFlushAll, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  if (longest_kernel_ns <= 0) throw Refused("tracing was switched on, but no kernel was recorded");
  return fmt::format("a kernel of {:.1f} us with {} registers a thread", longest_kernel_ns / 1e3,
                     registers_of_longest);
}

// ---- Counters: the host half knows metrics and passes, the target half counts.

std::string why_unsupported(const CUpti_Profiler_DeviceSupported_Params& asked) {
  const auto no = [](CUpti_Profiler_Support_Level level) {
    return level != CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
  };
  if (no(asked.architecture)) return "this architecture";
  if (no(asked.vGpu)) return "a virtual GPU without that permission";
  if (no(asked.confidentialCompute)) return "confidential computing";
  if (no(asked.cmp)) return "a mining card";
  if (no(asked.sli)) return "SLI";
  if (no(asked.wsl)) return "this WSL";
  return "this configuration";
}

// The chip's name as the host half spells it.
std::string supported_chip(CUpti_Profiler_API api) {
  CUpti_Profiler_Initialize_Params initialize{.structSize = CUpti_Profiler_Initialize_Params_STRUCT_SIZE};
  FATHOM_TRY(cuptiProfilerInitialize, &initialize);
  CUpti_Profiler_DeviceSupported_Params asked{
      .structSize = CUpti_Profiler_DeviceSupported_Params_STRUCT_SIZE, .cuDevice = gpu()->index, .api = api};
  FATHOM_TRY(cuptiProfilerDeviceSupported, &asked);
  if (asked.isSupported != CUPTI_PROFILER_CONFIGURATION_SUPPORTED)
    throw Refused(fmt::format("CUPTI does not count under {}", why_unsupported(asked)));
  CUpti_Device_GetChipName_Params chip{.structSize  = CUpti_Device_GetChipName_Params_STRUCT_SIZE,
                                       .deviceIndex = static_cast<size_t>(gpu()->index)};
  FATHOM_TRY(cuptiDeviceGetChipName, &chip);
  return chip.pChipName;
}

// A set of metrics this chip knows, and the image that tells the hardware how to count them.
class Metrics {
 public:
  Metrics(CUpti_ProfilerType type, const std::string& chip,
          const std::vector<std::vector<const char*>>& sets) {
    CUptiResult refused = CUPTI_SUCCESS;
    for (const std::vector<const char*>& set : sets) {
      refused = add(type, chip, set);
      if (refused == CUPTI_SUCCESS) break;
    }
    check(refused, "cuptiProfilerHostConfigAddMetrics");

    CUpti_Profiler_Host_GetConfigImageSize_Params size{
        .structSize = CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE, .pHostObject = host_};
    FATHOM_TRY(cuptiProfilerHostGetConfigImageSize, &size);
    image_.resize(size.configImageSize);
    CUpti_Profiler_Host_GetConfigImage_Params make{
        .structSize      = CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE,
        .pHostObject     = host_,
        .configImageSize = image_.size(),
        .pConfigImage    = image_.data()};
    FATHOM_TRY(cuptiProfilerHostGetConfigImage, &make);
    CUpti_Profiler_Host_GetNumOfPasses_Params passes{
        .structSize      = CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE,
        .configImageSize = image_.size(),
        .pConfigImage    = image_.data()};
    FATHOM_TRY(cuptiProfilerHostGetNumOfPasses, &passes);
    passes_ = static_cast<int>(passes.numOfPasses);
  }
  ~Metrics() { forget(); }
  Metrics(const Metrics&)            = delete;
  Metrics& operator=(const Metrics&) = delete;

  const std::vector<uint8_t>& image() const { return image_; }
  const char** names() { return names_.data(); }
  size_t count() const { return names_.size(); }
  int passes() const { return passes_; }

  std::vector<double> values(const std::vector<uint8_t>& counted) {
    std::vector<double> values(names_.size());
    CUpti_Profiler_Host_EvaluateToGpuValues_Params evaluate{
        .structSize           = CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE,
        .pHostObject          = host_,
        .pCounterDataImage    = counted.data(),
        .counterDataImageSize = counted.size(),
        .rangeIndex           = 0,
        .ppMetricNames        = names_.data(),
        .numMetrics           = names_.size(),
        .pMetricValues        = values.data()};
    FATHOM_TRY(cuptiProfilerHostEvaluateToGpuValues, &evaluate);
    return values;
  }

 private:
  // One unknown name refuses the whole set, and a host object that refused is of no more use.
  CUptiResult add(CUpti_ProfilerType type, const std::string& chip, const std::vector<const char*>& set) {
    forget();
    CUpti_Profiler_Host_Initialize_Params initialize{
        .structSize   = CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE,
        .profilerType = type,
        .pChipName    = chip.c_str()};
    FATHOM_TRY(cuptiProfilerHostInitialize, &initialize);
    host_  = initialize.pHostObject;
    names_ = set;
    CUpti_Profiler_Host_ConfigAddMetrics_Params add{
        .structSize    = CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE,
        .pHostObject   = host_,
        .ppMetricNames = names_.data(),
        .numMetrics    = names_.size()};
    return cupti().cuptiProfilerHostConfigAddMetrics(&add);
  }
  void forget() {
    if (!host_) return;
    CUpti_Profiler_Host_Deinitialize_Params end{
        .structSize = CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE, .pHostObject = host_};
    (void)cupti().cuptiProfilerHostDeinitialize(&end);
    host_ = nullptr;
  }

  CUpti_Profiler_Host_Object* host_ = nullptr;
  std::vector<const char*> names_;
  std::vector<uint8_t> image_;
  int passes_ = 0;
};

CUcontext current_context() {
  // The driver is open already; asking it directly saves linking its library.
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  const auto current =
      driver ? reinterpret_cast<CUresult (*)(CUcontext*)>(dlsym(driver, "cuCtxGetCurrent")) : nullptr;
  CUcontext context = nullptr;
  if (!current || current(&context) != CUDA_SUCCESS || !context)
    throw Refused("there is no current CUDA context");
  return context;
}

std::string probe_range_profiler() {
  const KnownRead read;
  Metrics metrics(CUPTI_PROFILER_TYPE_RANGE_PROFILER, supported_chip(CUPTI_PROFILER_RANGE_PROFILING),
                  kMetricSets);
  if (metrics.passes() != 1)
    throw Refused(
        fmt::format("the smallest set takes {} passes on this chip, and one is tried", metrics.passes()));

  CUpti_RangeProfiler_Enable_Params enable{.structSize = CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE,
                                           .ctx        = current_context()};
  FATHOM_TRY(cuptiRangeProfilerEnable, &enable);
  CUpti_RangeProfiler_Object* const profiler = enable.pRangeProfilerObject;
  const AtEnd disable([profiler] {
    CUpti_RangeProfiler_Disable_Params end{.structSize = CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE,
                                           .pRangeProfilerObject = profiler};
    (void)cupti().cuptiRangeProfilerDisable(&end);
  });

  CUpti_RangeProfiler_GetCounterDataSize_Params size{
      .structSize           = CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE,
      .pRangeProfilerObject = profiler,
      .pMetricNames         = metrics.names(),
      .numMetrics           = metrics.count(),
      .maxNumOfRanges       = 1,
      .maxNumRangeTreeNodes = 1};
  FATHOM_TRY(cuptiRangeProfilerGetCounterDataSize, &size);
  std::vector<uint8_t> counted(size.counterDataSize);
  CUpti_RangeProfiler_CounterDataImage_Initialize_Params initialize{
      .structSize           = CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE,
      .pRangeProfilerObject = profiler,
      .counterDataSize      = counted.size(),
      .pCounterData         = counted.data()};
  FATHOM_TRY(cuptiRangeProfilerCounterDataImageInitialize, &initialize);
  CUpti_RangeProfiler_SetConfig_Params configure{
      .structSize           = CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE,
      .pRangeProfilerObject = profiler,
      .configSize           = metrics.image().size(),
      .pConfig              = metrics.image().data(),
      .counterDataImageSize = counted.size(),
      .pCounterDataImage    = counted.data(),
      .range                = CUPTI_UserRange,
      .replayMode           = CUPTI_UserReplay,
      .maxRangesPerPass     = 1,
      .numNestingLevels     = 1,
      .minNestingLevel      = 1,
      .passIndex            = 0,
      .targetNestingLevel   = 0};
  FATHOM_TRY(cuptiRangeProfilerSetConfig, &configure);

  CUpti_RangeProfiler_Start_Params start{.structSize           = CUpti_RangeProfiler_Start_Params_STRUCT_SIZE,
                                         .pRangeProfilerObject = profiler};
  FATHOM_TRY(cuptiRangeProfilerStart, &start);
  CUpti_RangeProfiler_PushRange_Params push{.structSize = CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE,
                                            .pRangeProfilerObject = profiler,
                                            .pRangeName           = "known read"};
  FATHOM_TRY(cuptiRangeProfilerPushRange, &push);
  const double bytes = read.run();
  read.finish();
  CUpti_RangeProfiler_PopRange_Params pop{.structSize = CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE,
                                          .pRangeProfilerObject = profiler};
  FATHOM_TRY(cuptiRangeProfilerPopRange, &pop);
  CUpti_RangeProfiler_Stop_Params stop{.structSize           = CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE,
                                       .pRangeProfilerObject = profiler};
  FATHOM_TRY(cuptiRangeProfilerStop, &stop);
  CUpti_RangeProfiler_DecodeData_Params decode{
      .structSize = CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE, .pRangeProfilerObject = profiler};
  FATHOM_TRY(cuptiRangeProfilerDecodeData, &decode);

  const std::vector<double> values = metrics.values(counted);
  const std::string seen = fmt::format("{:.1f} MB counted of a read of {:.1f} MB, {} metrics in one pass",
                                       values[0] / 1e6, bytes / 1e6, values.size());
  // The GPU counts what others do at the same time, too, and may find some of it in L2.
  if (values[0] < 0.5 * bytes || values[0] > 2 * bytes)
    throw Refused("the counters run but are wrong: " + seen);
  return seen;
}

std::string probe_pm_sampling() {
  const KnownRead read;
  Metrics metrics(CUPTI_PROFILER_TYPE_PM_SAMPLING, supported_chip(CUPTI_PROFILER_PM_SAMPLING), kSampledSets);

  CUpti_PmSampling_Enable_Params enable{.structSize  = CUpti_PmSampling_Enable_Params_STRUCT_SIZE,
                                        .deviceIndex = static_cast<size_t>(gpu()->index)};
  FATHOM_TRY(cuptiPmSamplingEnable, &enable);
  CUpti_PmSampling_Object* const sampler = enable.pPmSamplingObject;
  const AtEnd disable([sampler] {
    CUpti_PmSampling_Disable_Params end{.structSize        = CUpti_PmSampling_Disable_Params_STRUCT_SIZE,
                                        .pPmSamplingObject = sampler};
    (void)cupti().cuptiPmSamplingDisable(&end);
  });

  CUpti_PmSampling_SetConfig_Params configure{
      .structSize         = CUpti_PmSampling_SetConfig_Params_STRUCT_SIZE,
      .pPmSamplingObject  = sampler,
      .configSize         = metrics.image().size(),
      .pConfig            = metrics.image().data(),
      .hardwareBufferSize = kHardwareBuffer,
      .samplingInterval   = kSampleNs,
      .triggerMode        = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL,
      .hwBufferAppendMode = CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST};
  FATHOM_TRY(cuptiPmSamplingSetConfig, &configure);
  CUpti_PmSampling_GetCounterDataSize_Params size{
      .structSize        = CUpti_PmSampling_GetCounterDataSize_Params_STRUCT_SIZE,
      .pPmSamplingObject = sampler,
      .pMetricNames      = metrics.names(),
      .numMetrics        = metrics.count(),
      .maxSamples        = kMostSamples};
  FATHOM_TRY(cuptiPmSamplingGetCounterDataSize, &size);
  std::vector<uint8_t> counted(size.counterDataSize);
  CUpti_PmSampling_CounterDataImage_Initialize_Params initialize{
      .structSize        = CUpti_PmSampling_CounterDataImage_Initialize_Params_STRUCT_SIZE,
      .pPmSamplingObject = sampler,
      .counterDataSize   = counted.size(),
      .pCounterData      = counted.data()};
  FATHOM_TRY(cuptiPmSamplingCounterDataImageInitialize, &initialize);

  CUpti_PmSampling_Start_Params start{.structSize        = CUpti_PmSampling_Start_Params_STRUCT_SIZE,
                                      .pPmSamplingObject = sampler};
  FATHOM_TRY(cuptiPmSamplingStart, &start);
  for (int i = 0; i < kSampledReads; ++i) read.run();
  read.finish();
  CUpti_PmSampling_Stop_Params stop{.structSize        = CUpti_PmSampling_Stop_Params_STRUCT_SIZE,
                                    .pPmSamplingObject = sampler};
  FATHOM_TRY(cuptiPmSamplingStop, &stop);
  CUpti_PmSampling_DecodeData_Params decode{.structSize = CUpti_PmSampling_DecodeData_Params_STRUCT_SIZE,
                                            .pPmSamplingObject    = sampler,
                                            .pCounterDataImage    = counted.data(),
                                            .counterDataImageSize = counted.size()};
  FATHOM_TRY(cuptiPmSamplingDecodeData, &decode);
  CUpti_PmSampling_GetCounterDataInfo_Params info{
      .structSize           = CUpti_PmSampling_GetCounterDataInfo_Params_STRUCT_SIZE,
      .pCounterDataImage    = counted.data(),
      .counterDataImageSize = counted.size()};
  FATHOM_TRY(cuptiPmSamplingGetCounterDataInfo, &info);
  if (info.numCompletedSamples == 0) throw Refused("sampling was switched on, but no sample arrived");
  return fmt::format("{} samples of {} metric{}, {} us apart", info.numCompletedSamples, metrics.count(),
                     metrics.count() == 1 ? "" : "s", kSampleNs / 1000);
}

}  // namespace

Result<std::string> try_cupti_activity() { return attempt(probe_activity); }
Result<std::string> try_cupti_range_profiler() { return attempt(probe_range_profiler); }
Result<std::string> try_cupti_pm_sampling() { return attempt(probe_pm_sampling); }

}  // namespace fathom::machine
