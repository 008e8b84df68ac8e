// Owners of uninitialised device memory and of page-locked host memory.
#pragma once

#include <cstdint>
#include <utility>

#include "core/buffer.h"
#include "core/expect.h"
#include "core/view.h"
#include "cuda/device.h"

namespace fathom {

template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // `device` must outlive it. Throws NotEnoughMemory.
  DeviceBuffer(Device& device, int64_t size)
      : device_(&device),
        data_(size > 0 ? static_cast<T*>(device.allocate(size * static_cast<int64_t>(sizeof(T)))) : nullptr),
        size_(size) {}
  ~DeviceBuffer() {
    if (data_) device_->release(data_);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }
  View<T, 1> view() const { return View<T, 1>(data_, {size_}); }
  // A view of the first elements in another shape.
  template <int Rank>
  View<T, Rank> as(const int64_t (&extents)[Rank]) const {
    const View<T, Rank> view(data_, extents);
    FATHOM_EXPECT(view.size() <= size_, "a view is larger than its buffer");
    return view;
  }

 private:
  Device* device_ = nullptr;
  T* data_        = nullptr;
  int64_t size_   = 0;
};

template <class T>
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // `device` must outlive it.
  PinnedBuffer(Device& device, int64_t size) : device_(&device), memory_(size) {
    if (size > 0) device.pin(memory_.data(), size * static_cast<int64_t>(sizeof(T)));
  }
  ~PinnedBuffer() {
    if (memory_.data()) device_->unpin(memory_.data());
  }
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    return *this;
  }

  T* data() const { return memory_.data(); }
  int64_t size() const { return memory_.size(); }

 private:
  Device* device_ = nullptr;
  Buffer<T> memory_;
};

}  // namespace fathom
