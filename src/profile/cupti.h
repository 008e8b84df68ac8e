// CUPTI, NVIDIA's tracing and counting library, opened at run time. Only a build with CUDA compiles this.
#pragma once

#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <string>
#include <string_view>

#include "core/result.h"

namespace fathom::profile {

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
  X(cuptiRangeProfilerGetCounterDataInfo)

// Its functions, by their names.
struct Cupti {
#define FATHOM_CUPTI_MEMBER(function) decltype(&::function) function = nullptr;
  FATHOM_CUPTI_FUNCTIONS(FATHOM_CUPTI_MEMBER)
#undef FATHOM_CUPTI_MEMBER

  // Opened once in a process. An error where there is none, or one whose records this program cannot read:
  // their layout is that of the version this program was compiled with, or a later one of the same CUDA.
  static Result<const Cupti*> open();

  // Why a call failed, in a sentence with what to do about it.
  Error refused(std::string_view call, CUptiResult why) const;
};

// A parameter block of CUPTI, which tells its own size.
#define FATHOM_CUPTI_PARAMS(type, name) \
  type name{};                          \
  name.structSize = type##_STRUCT_SIZE

// A tool that is attached to this process, or will be: CUPTI serves one at a time. Empty for none.
std::string injected_tool();

}  // namespace fathom::profile
