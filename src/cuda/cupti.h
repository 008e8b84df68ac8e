// CUPTI, NVIDIA's tracing and counting library, opened at run time. Only a build with CUDA compiles this.
#pragma once

#include <cupti.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom {

#define FATHOM_CUPTI_FUNCTIONS(X)                 \
  X(cuptiGetVersion)                              \
  X(cuptiGetResultString)                         \
  X(cuptiGetTimestamp)                            \
  X(cuptiGetCallbackName)                         \
  X(cuptiSetThreadIdType)                         \
  X(cuptiSubscribe_v2)                            \
  X(cuptiUnsubscribe)                             \
  X(cuptiActivityRegisterCallbacks)               \
  X(cuptiActivityEnable)                          \
  X(cuptiActivityDisable)                         \
  X(cuptiActivityFlushAll)                        \
  X(cuptiActivityGetNextRecord)                   \
  X(cuptiActivityGetNumDroppedRecords)            \
  X(cuptiDeviceGetChipName)                       \
  X(cuptiProfilerInitialize)                      \
  X(cuptiProfilerDeviceSupported)                 \
  X(cuptiProfilerGetCounterAvailability)          \
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
  X(cuptiRangeProfilerStop)                       \
  X(cuptiRangeProfilerDecodeData)                 \
  X(cuptiRangeProfilerGetCounterDataInfo)         \
  X(cuptiPmSamplingEnable)                        \
  X(cuptiPmSamplingDisable)                       \
  X(cuptiPmSamplingSetConfig)                     \
  X(cuptiPmSamplingGetCounterDataSize)            \
  X(cuptiPmSamplingCounterDataImageInitialize)    \
  X(cuptiPmSamplingStart)                         \
  X(cuptiPmSamplingStop)                          \
  X(cuptiPmSamplingDecodeData)                    \
  X(cuptiPmSamplingGetCounterDataInfo)

// CUPTI's functions by their names.
struct Cupti {
#define FATHOM_CUPTI_MEMBER(function) decltype(&::function) function = nullptr;
  FATHOM_CUPTI_FUNCTIONS(FATHOM_CUPTI_MEMBER)
#undef FATHOM_CUPTI_MEMBER

  // Opened once in a process. An error where CUPTI is missing, or its version is older than the one this
  // program was compiled with or of another major version: the layout of its records would differ.
  static Result<const Cupti*> open();

  // Why a call failed, in a sentence with what to do about it.
  Error refused(std::string_view call, CUptiResult why) const;
};

// In a function that returns Result or Status: makes a call of CUPTI, and returns its error.
#define FATHOM_CUPTI(library, function, ...)                                                              \
  if (const CUptiResult fathom_why = (library).cupti##function(__VA_ARGS__); fathom_why != CUPTI_SUCCESS) \
  return (library).refused(#function, fathom_why)

// Declares a parameter block of CUPTI, which holds its own size.
#define FATHOM_CUPTI_PARAMS(type, name) \
  type name{};                          \
  name.structSize = type##_STRUCT_SIZE

// The library of a profiling tool that CUPTI loads into this process, or empty. CUPTI serves one client at a
// time.
std::string injected_tool();

}  // namespace fathom
