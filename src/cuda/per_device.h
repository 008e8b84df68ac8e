// State of a kernel launcher that depends on the GPU: attributes that are set once, occupancy that is queried
// once. One value for each GPU, so that one process can launch the same kernel on several.
#pragma once

#include "cuda/device_id.h"

namespace fathom {

// CUDA's ordinal of the calling thread's current GPU (cudaSetDevice).
int current_gpu();

// Held while a value is made. One lock serves all, as values are made once.
class PerDeviceLock {
 public:
  PerDeviceLock();
  ~PerDeviceLock();
  PerDeviceLock(const PerDeviceLock&)            = delete;
  PerDeviceLock& operator=(const PerDeviceLock&) = delete;
};

// Declared `static` in a launcher. The first call of get() on a GPU makes its value. T is trivially copyable.
template <class T>
class PerDevice {
 public:
  template <class Make>
  T get(Make make) {
    const int gpu = current_gpu();
    if (!__atomic_load_n(&made_[gpu], __ATOMIC_ACQUIRE)) {
      const PerDeviceLock lock;
      values_[gpu] = make();
      __atomic_store_n(&made_[gpu], true, __ATOMIC_RELEASE);
    }
    return values_[gpu];
  }

 private:
  T values_[kMaxGpus]  = {};
  bool made_[kMaxGpus] = {};
};

}  // namespace fathom
