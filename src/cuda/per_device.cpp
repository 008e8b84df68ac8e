#include "cuda/per_device.h"

#include <mutex>

#include "core/expect.h"
#include "cuda/check.h"

namespace fathom {
namespace {

// Recursive: making one value may need another, such as the number of multiprocessors.
std::recursive_mutex& mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace

int current_gpu() {
  int gpu = 0;
  FATHOM_CUDA(cudaGetDevice(&gpu));
  FATHOM_EXPECT(gpu < kMaxGpus, "more GPUs are visible than Fathom keeps launchers' state for");
  return gpu;
}

PerDeviceLock::PerDeviceLock() { mutex().lock(); }
PerDeviceLock::~PerDeviceLock() { mutex().unlock(); }

}  // namespace fathom
