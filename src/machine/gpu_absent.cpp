// Stands in for everything that needs CUDA in a build without it.
#include "core/expect.h"
#include "machine/gpu.h"
#include "machine/gpu_ceiling_kernels.h"
#include "machine/gpu_ceilings_measure.h"
#include "machine/gpu_profiling_cupti.h"

namespace fathom::machine {

const GpuFacts* gpu(DeviceId) { return nullptr; }

std::string why_no_gpu(DeviceId) {
  return "this program was built without CUDA: configure the build with -DFATHOM_CUDA=ON";
}

const GpuKernels* gpu_kernels() { return nullptr; }

GpuCeilings measure_gpu_ceilings(const ProgressLine&, DeviceId) { throw SystemError(why_no_gpu()); }
Measured measure_gpu_bandwidth(GpuLevel, Traffic, DeviceId) { throw SystemError(why_no_gpu()); }
Measured measure_gpu_flops(DType, bool, DeviceId) { throw SystemError(why_no_gpu()); }

Result<std::string> try_cupti_activity(DeviceId) { return Error{why_no_gpu()}; }
Result<std::string> try_cupti_range_profiler(DeviceId) { return Error{why_no_gpu()}; }
Result<std::string> try_cupti_pm_sampling(DeviceId) { return Error{why_no_gpu()}; }

}  // namespace fathom::machine
