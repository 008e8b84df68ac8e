#include "cuda/device_guard.h"

#include "cuda/check.h"

namespace fathom {

DeviceGuard::DeviceGuard(DeviceId id) {
  FATHOM_CUDA(cudaGetDevice(&previous_));
  if (previous_ == id.ordinal) return;
  FATHOM_CUDA(cudaSetDevice(id.ordinal));
  changed_ = true;
}

DeviceGuard::~DeviceGuard() {
  if (changed_) (void)cudaSetDevice(previous_);
}

}  // namespace fathom
