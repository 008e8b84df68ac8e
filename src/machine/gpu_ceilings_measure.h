// Measures the ceilings of machine/gpu_ceilings.h. Without that GPU, or in a build without CUDA, all of these
// throw SystemError with the reason.
#pragma once

#include "machine/ceilings_measure.h"
#include "machine/gpu_ceilings.h"

namespace fathom::machine {

GpuCeilings measure_gpu_ceilings(const ProgressLine& progress, DeviceId device);

// One entry each.
Measured measure_gpu_bandwidth(GpuLevel level, Traffic traffic, DeviceId device);
Measured measure_gpu_flops(DType dtype, bool tensor, DeviceId device);

}  // namespace fathom::machine
