// Stands in for everything that needs CUDA in a build without it.
#include "core/expect.h"
#include "machine/gpu.h"
#include "machine/gpu_ceilings_measure.h"
#include "machine/gpu_kernels.h"
#include "machine/gpu_profiling_cupti.h"

namespace fathom::machine {

const GpuFacts* gpu() { return nullptr; }

std::string why_no_gpu() {
  return "this program was built without CUDA: configure the build with -DFATHOM_CUDA=ON";
}

const GpuKernels* gpu_kernels() { return nullptr; }

GpuCeilings measure_gpu_ceilings(const ProgressLine&) { throw SystemError(why_no_gpu()); }
Measured measure_gpu_bandwidth(GpuLevel, Traffic) { throw SystemError(why_no_gpu()); }
Measured measure_gpu_flops(DType, bool) { throw SystemError(why_no_gpu()); }

Result<std::string> try_cupti_activity() { return Error{why_no_gpu()}; }
Result<std::string> try_cupti_range_profiler() { return Error{why_no_gpu()}; }
Result<std::string> try_cupti_pm_sampling() { return Error{why_no_gpu()}; }

}  // namespace fathom::machine
