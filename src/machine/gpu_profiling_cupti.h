// The rungs of machine/gpu_profiling.h that use CUPTI.
#pragma once

#include <string>

#include "core/result.h"
#include "cuda/device_id.h"

namespace fathom::machine {

// What the rung measured, or why it does not work.
Result<std::string> try_cupti_activity(DeviceId device);
Result<std::string> try_cupti_range_profiler(DeviceId device);
Result<std::string> try_cupti_pm_sampling(DeviceId device);

}  // namespace fathom::machine
