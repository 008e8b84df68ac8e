#include "profile/range_profiler.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/cuda.h"
#include "core/device.h"
#include "profile/counter_config.h"
#include "profile/cupti.h"

namespace fathom::profile {
namespace {

// What is known of the current device before anything is counted.
struct Counting {
  const Cupti* cupti = nullptr;
  CUcontext context  = nullptr;
  std::string chip;                // "GH100"
  std::vector<uint8_t> available;  // which counters this driver and user may have
};

// The driver's function, without linking the driver.
Result<CUcontext> current_context() {
  FATHOM_CUDA(cudaFree(nullptr));  // makes the device's context where there is none yet
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, 12000, cudaEnableDefault, &found) !=
          cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    (void)cudaGetLastError();
    return Error{"the CUDA driver has no cuCtxGetCurrent"};
  }
  CUcontext context  = nullptr;
  const CUresult why = reinterpret_cast<CUresult (*)(CUcontext*)>(function)(&context);
  if (why != CUDA_SUCCESS || !context) return Error{"this thread has no CUDA context"};
  return context;
}

std::string unsupported(const CUpti_Profiler_DeviceSupported_Params& said) {
  const auto no = [](CUpti_Profiler_Support_Level level) {
    return level == CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED ||
           level == CUPTI_PROFILER_CONFIGURATION_DISABLED;
  };
  if (no(said.architecture)) return "it is older than compute capability 7.5";
  if (no(said.vGpu)) return "it is a virtual GPU whose hypervisor forbids profiling";
  if (no(said.confidentialCompute)) return "confidential computing is on";
  if (no(said.sli)) return "SLI is on";
  if (no(said.cmp)) return "it is a mining processor";
  if (no(said.wsl)) return "this Windows Subsystem for Linux does not pass counters on";
  return "CUPTI does not say why";
}

Result<Counting> prepare() {
  if (const std::string tool = injected_tool(); !tool.empty())
    return Error{
        fmt::format("{} is injected into this process (CUDA_INJECTION64_PATH), and one tool at a time "
                    "reads counters: run without it",
                    tool)};
  if (!cuda_device()) return Error{why_no_cuda_device()};
  const auto opened = Cupti::open();
  if (!opened) return opened.error();
  Counting counting{.cupti = *opened};
  const Cupti& cupti = *counting.cupti;
  auto context       = current_context();
  if (!context) return context.error();
  counting.context = *context;
  int device       = 0;
  FATHOM_CUDA(cudaGetDevice(&device));

  FATHOM_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params, initialize);
  if (const CUptiResult why = cupti.cuptiProfilerInitialize(&initialize); why != CUPTI_SUCCESS)
    return cupti.refused("ProfilerInitialize", why);

  FATHOM_CUPTI_PARAMS(CUpti_Profiler_DeviceSupported_Params, supported);
  supported.cuDevice = device;
  supported.api      = CUPTI_PROFILER_RANGE_PROFILING;
  if (const CUptiResult why = cupti.cuptiProfilerDeviceSupported(&supported); why != CUPTI_SUCCESS)
    return cupti.refused("ProfilerDeviceSupported", why);
  if (supported.isSupported != CUPTI_PROFILER_CONFIGURATION_SUPPORTED)
    return Error{fmt::format("GPU {} has no counters to read: {}", device, unsupported(supported))};

  FATHOM_CUPTI_PARAMS(CUpti_Device_GetChipName_Params, chip);
  chip.deviceIndex = static_cast<size_t>(device);
  if (const CUptiResult why = cupti.cuptiDeviceGetChipName(&chip); why != CUPTI_SUCCESS)
    return cupti.refused("DeviceGetChipName", why);
  counting.chip = chip.pChipName;

  // The first call that fails where counters are kept to administrators; asked twice, for its size and for
  // it.
  FATHOM_CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params, available);
  available.ctx = counting.context;
  if (const CUptiResult why = cupti.cuptiProfilerGetCounterAvailability(&available); why != CUPTI_SUCCESS)
    return cupti.refused("ProfilerGetCounterAvailability", why);
  counting.available.resize(available.counterAvailabilityImageSize);
  available.pCounterAvailabilityImage = counting.available.data();
  if (const CUptiResult why = cupti.cuptiProfilerGetCounterAvailability(&available); why != CUPTI_SUCCESS)
    return cupti.refused("ProfilerGetCounterAvailability", why);
  return counting;
}

// The Range Profiler of one context, enabled until the end of the scope.
class RangeProfiler {
 public:
  explicit RangeProfiler(const Cupti& cupti) : cupti_(cupti) {}
  RangeProfiler(const RangeProfiler&) = delete;
  ~RangeProfiler() {
    if (!object_) return;
    if (started_) (void)stop();
    FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params, params);
    params.pRangeProfilerObject = object_;
    (void)cupti_.cuptiRangeProfilerDisable(&params);
  }

  Status enable(CUcontext context) {
    FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params, params);
    params.ctx = context;
    if (const CUptiResult why = cupti_.cuptiRangeProfilerEnable(&params); why != CUPTI_SUCCESS)
      return cupti_.refused("RangeProfilerEnable", why);
    object_ = params.pRangeProfilerObject;
    return Ok{};
  }

  Status configure(CounterConfig& config, size_t most_ranges) {
    std::vector<const char*> names = config.name_pointers();
    FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
    size.pRangeProfilerObject = object_;
    size.pMetricNames         = names.data();
    size.numMetrics           = names.size();
    size.maxNumOfRanges       = most_ranges;
    size.maxNumRangeTreeNodes = static_cast<uint32_t>(most_ranges);
    if (const CUptiResult why = cupti_.cuptiRangeProfilerGetCounterDataSize(&size); why != CUPTI_SUCCESS)
      return cupti_.refused("RangeProfilerGetCounterDataSize", why);
    data_.assign(size.counterDataSize, 0);

    FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, initialize);
    initialize.pRangeProfilerObject = object_;
    initialize.counterDataSize      = data_.size();
    initialize.pCounterData         = data_.data();
    if (const CUptiResult why = cupti_.cuptiRangeProfilerCounterDataImageInitialize(&initialize);
        why != CUPTI_SUCCESS)
      return cupti_.refused("RangeProfilerCounterDataImageInitialize", why);

    FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params, set);
    set.pRangeProfilerObject = object_;
    set.pConfig              = config.image().data();
    set.configSize           = config.image().size();
    set.pCounterDataImage    = data_.data();
    set.counterDataImageSize = data_.size();
    set.range                = CUPTI_AutoRange;     // each kernel is one
    set.replayMode           = CUPTI_KernelReplay;  // all its passes at once, within this one run of the call
    set.maxRangesPerPass     = most_ranges;
    set.numNestingLevels     = 1;
    set.minNestingLevel      = 1;
    set.passIndex            = 0;
    set.targetNestingLevel   = 1;
    if (const CUptiResult why = cupti_.cuptiRangeProfilerSetConfig(&set); why != CUPTI_SUCCESS)
      return cupti_.refused("RangeProfilerSetConfig", why);
    return Ok{};
  }

  Status start() {
    FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params, params);
    params.pRangeProfilerObject = object_;
    if (const CUptiResult why = cupti_.cuptiRangeProfilerStart(&params); why != CUPTI_SUCCESS)
      return cupti_.refused("RangeProfilerStart", why);
    started_ = true;
    return Ok{};
  }

  // Whether every pass was made.
  Result<bool> stop() {
    started_ = false;
    FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params, params);
    params.pRangeProfilerObject = object_;
    if (const CUptiResult why = cupti_.cuptiRangeProfilerStop(&params); why != CUPTI_SUCCESS)
      return cupti_.refused("RangeProfilerStop", why);
    return params.isAllPassSubmitted != 0;
  }

  // How many ranges did not fit.
  Result<size_t> decode() {
    FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params, params);
    params.pRangeProfilerObject = object_;
    if (const CUptiResult why = cupti_.cuptiRangeProfilerDecodeData(&params); why != CUPTI_SUCCESS)
      return cupti_.refused("RangeProfilerDecodeData", why);
    return params.numOfRangeDropped;
  }

  Result<size_t> ranges() const {
    FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params, params);
    params.pCounterDataImage    = data_.data();
    params.counterDataImageSize = data_.size();
    if (const CUptiResult why = cupti_.cuptiRangeProfilerGetCounterDataInfo(&params); why != CUPTI_SUCCESS)
      return cupti_.refused("RangeProfilerGetCounterDataInfo", why);
    return params.numTotalRanges;
  }

  const std::vector<uint8_t>& data() const { return data_; }

 private:
  const Cupti& cupti_;
  CUpti_RangeProfiler_Object* object_ = nullptr;
  bool started_                       = false;
  std::vector<uint8_t> data_;
};

}  // namespace

Result<CounterRun> count_kernels(MetricSet set, size_t most_kernels, const std::function<void()>& call) {
  const auto counting = prepare();
  if (!counting) return counting.error();
  const std::vector<Counter> wanted = counters(set, counting->chip);
  if (wanted.empty())
    return Error{
        fmt::format("there is no table of counters for the chip {} (profile/metrics.cpp)", counting->chip)};
  std::vector<std::string> names;
  for (const Counter& counter : wanted) names.emplace_back(counter.cupti);
  auto config = CounterConfig::create(*counting->cupti, counting->chip, names, counting->available);
  if (!config) return config.error();

  FATHOM_CUDA(cudaDeviceSynchronize());
  RangeProfiler profiler(*counting->cupti);
  if (auto enabled = profiler.enable(counting->context); !enabled) return enabled.error();
  if (auto configured = profiler.configure(*config, std::max<size_t>(1, most_kernels)); !configured)
    return configured.error();
  if (auto started = profiler.start(); !started) return started.error();
  call();
  FATHOM_CUDA(cudaDeviceSynchronize());
  const auto complete = profiler.stop();
  if (!complete) return complete.error();
  const auto dropped = profiler.decode();
  if (!dropped) return dropped.error();
  const auto ranges = profiler.ranges();
  if (!ranges) return ranges.error();

  CounterRun run{.passes = config->passes()};
  if (!*complete) run.notes.push_back("not every pass was made: some counters may be missing");
  if (*dropped > 0)
    run.notes.push_back(fmt::format("the counters of {} kernels were lost: the call launched more than {}",
                                    *dropped, most_kernels));
  for (size_t range = 0; range < *ranges; ++range) {
    const auto values = config->values(profiler.data(), range);
    if (!values) return values.error();
    KernelCounters& kernel = run.kernels.emplace_back();
    for (size_t i = 0; i < wanted.size(); ++i) kernel[std::string(wanted[i].name)] = (*values)[i];
  }
  return run;
}

std::string why_no_counters() {
  const auto counting = prepare();
  return counting ? "" : counting.error().message;
}

}  // namespace fathom::profile
