// Makes a GPU the calling thread's current one for a scope (cudaSetDevice). Launches, events, library handles
// and graphs belong to the GPU that is current when they are made. Only builds with CUDA have it. Cheap to
// include: no header of CUDA.
#pragma once

#include "cuda/device_id.h"

namespace fathom {

class DeviceGuard {
 public:
  explicit DeviceGuard(DeviceId id);
  ~DeviceGuard();  // the earlier one is current again
  DeviceGuard(const DeviceGuard&)            = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace fathom
