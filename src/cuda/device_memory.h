// Allocation, page-locking and copies of one GPU (Device's memory functions). The GPU must be current.
#pragma once

#include <cstdint>

#include "cuda/stream.h"

namespace fathom {

class DeviceMemory {
 public:
  // Copies run on `stream`, through a page-locked staging buffer of this object.
  explicit DeviceMemory(StreamRef stream);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&)            = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* allocate(int64_t bytes);
  void release(void* memory) noexcept;
  void pin(void* memory, int64_t bytes);
  void unpin(void* memory) noexcept;
  void to_device(void* to, const void* from, int64_t bytes);
  void to_host(void* to, const void* from, int64_t bytes);

 private:
  StreamRef stream_;
  void* staging_ = nullptr;
};

}  // namespace fathom
