#include "machine/range_profiler.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "cuda/check.h"
#include "cuda/per_device.h"

namespace fathom::machine {
namespace {

// By the driver's function, without linking the driver.
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

std::string why_unsupported(const CUpti_Profiler_DeviceSupported_Params& support) {
  const auto no = [](CUpti_Profiler_Support_Level level) {
    return level == CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED ||
           level == CUPTI_PROFILER_CONFIGURATION_DISABLED;
  };
  if (no(support.architecture)) return "it is older than compute capability 7.5";
  if (no(support.vGpu)) return "it is a virtual GPU whose hypervisor forbids profiling";
  if (no(support.confidentialCompute)) return "confidential computing is on";
  if (no(support.sli)) return "SLI is on";
  if (no(support.cmp)) return "it is a mining processor";
  if (no(support.wsl)) return "this Windows Subsystem for Linux does not pass counters on";
  return "CUPTI does not say why";
}

}  // namespace

Result<ProfiledGpu> profiled_gpu(const Cupti& cupti, CUpti_Profiler_API api) {
  ProfiledGpu gpu;
  const auto context = current_context();
  if (!context) return context.error();
  gpu.context      = *context;
  const int device = current_gpu();

  FATHOM_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params, initialize);
  FATHOM_CUPTI(cupti, ProfilerInitialize, &initialize);

  FATHOM_CUPTI_PARAMS(CUpti_Profiler_DeviceSupported_Params, support);
  support.cuDevice = device;
  support.api      = api;
  FATHOM_CUPTI(cupti, ProfilerDeviceSupported, &support);
  if (support.isSupported != CUPTI_PROFILER_CONFIGURATION_SUPPORTED)
    return Error{fmt::format("GPU {} has no counters to read: {}", device, why_unsupported(support))};

  FATHOM_CUPTI_PARAMS(CUpti_Device_GetChipName_Params, chip);
  chip.deviceIndex = static_cast<size_t>(device);
  FATHOM_CUPTI(cupti, DeviceGetChipName, &chip);
  gpu.chip = chip.pChipName;
  return gpu;
}

Result<std::vector<uint8_t>> available_counters(const Cupti& cupti, CUcontext context) {
  // Called twice: for the size, and for the image.
  FATHOM_CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params, params);
  params.ctx = context;
  FATHOM_CUPTI(cupti, ProfilerGetCounterAvailability, &params);
  std::vector<uint8_t> image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  FATHOM_CUPTI(cupti, ProfilerGetCounterAvailability, &params);
  return image;
}

RangeProfiler::~RangeProfiler() {
  if (!object_) return;
  if (started_) (void)stop();
  FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params, params);
  params.pRangeProfilerObject = object_;
  (void)cupti_.cuptiRangeProfilerDisable(&params);
}

Status RangeProfiler::enable(CUcontext context) {
  FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params, params);
  params.ctx = context;
  FATHOM_CUPTI(cupti_, RangeProfilerEnable, &params);
  object_ = params.pRangeProfilerObject;
  return Ok{};
}

Status RangeProfiler::configure(CounterConfig& config, size_t max_ranges) {
  std::vector<const char*> names = config.name_pointers();
  FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
  size.pRangeProfilerObject = object_;
  size.pMetricNames         = names.data();
  size.numMetrics           = names.size();
  size.maxNumOfRanges       = max_ranges;
  size.maxNumRangeTreeNodes = static_cast<uint32_t>(max_ranges);
  FATHOM_CUPTI(cupti_, RangeProfilerGetCounterDataSize, &size);
  data_.assign(size.counterDataSize, 0);

  FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, initialize);
  initialize.pRangeProfilerObject = object_;
  initialize.counterDataSize      = data_.size();
  initialize.pCounterData         = data_.data();
  FATHOM_CUPTI(cupti_, RangeProfilerCounterDataImageInitialize, &initialize);

  FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params, set);
  set.pRangeProfilerObject = object_;
  set.pConfig              = config.image().data();
  set.configSize           = config.image().size();
  set.pCounterDataImage    = data_.data();
  set.counterDataImageSize = data_.size();
  set.range                = CUPTI_AutoRange;     // each kernel is one
  set.replayMode           = CUPTI_KernelReplay;  // all its passes at once, within this one run of the call
  set.maxRangesPerPass     = max_ranges;
  set.numNestingLevels     = 1;
  set.minNestingLevel      = 1;
  set.passIndex            = 0;
  set.targetNestingLevel   = 1;
  FATHOM_CUPTI(cupti_, RangeProfilerSetConfig, &set);
  return Ok{};
}

Status RangeProfiler::start() {
  FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params, params);
  params.pRangeProfilerObject = object_;
  FATHOM_CUPTI(cupti_, RangeProfilerStart, &params);
  started_ = true;
  return Ok{};
}

Result<bool> RangeProfiler::stop() {
  started_ = false;
  FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params, params);
  params.pRangeProfilerObject = object_;
  FATHOM_CUPTI(cupti_, RangeProfilerStop, &params);
  return params.isAllPassSubmitted != 0;
}

Result<size_t> RangeProfiler::decode() {
  FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params, params);
  params.pRangeProfilerObject = object_;
  FATHOM_CUPTI(cupti_, RangeProfilerDecodeData, &params);
  return params.numOfRangeDropped;
}

Result<size_t> RangeProfiler::ranges() const {
  FATHOM_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params, params);
  params.pCounterDataImage    = data_.data();
  params.counterDataImageSize = data_.size();
  FATHOM_CUPTI(cupti_, RangeProfilerGetCounterDataInfo, &params);
  return params.numTotalRanges;
}

}  // namespace fathom::machine
