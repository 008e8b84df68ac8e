// For tests: an array in device memory between guard bands. It is poisoned at first, so that a test sees what
// was not written.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/view.h"
#include "cuda/device.h"

namespace fathom::kernels {

template <class T>
class GuardedDeviceBuffer {
 public:
  // The poison is NaN as fp32 and as bf16, and the largest int32.
  explicit GuardedDeviceBuffer(int64_t size)
      : size_(size), memory_(static_cast<char*>(find_device({0})->allocate(bytes() + 2 * kGuard))) {
    find_device({0})->set_words(memory_, bytes() + 2 * kGuard, kPoison);
  }
  explicit GuardedDeviceBuffer(const std::vector<T>& values)
      : GuardedDeviceBuffer(static_cast<int64_t>(values.size())) {
    write(values);
  }
  ~GuardedDeviceBuffer() { find_device({0})->release(memory_); }
  GuardedDeviceBuffer(const GuardedDeviceBuffer&)            = delete;
  GuardedDeviceBuffer& operator=(const GuardedDeviceBuffer&) = delete;

  int64_t size() const { return size_; }
  T* data() const { return reinterpret_cast<T*>(memory_ + kGuard); }
  template <int kRank>
  View<T, kRank> view(const int64_t (&extents)[kRank]) const {
    return {data(), extents};
  }

  void write(const std::vector<T>& values) {
    if (size_ > 0) find_device({0})->to_device(data(), values.data(), bytes());
  }

  // The contents after all earlier kernels; expects the guard bands to be untouched.
  std::vector<T> read() const {
    find_device({0})->synchronize();
    std::vector<T> values(static_cast<size_t>(size_));
    if (size_ > 0) find_device({0})->to_host(values.data(), data(), bytes());
    for (const char* band : {memory_, memory_ + kGuard + (bytes() + 3) / 4 * 4}) {
      std::vector<uint32_t> words(kGuard / 4 - 1);
      find_device({0})->to_host(words.data(), band, kGuard - 4);
      for (const uint32_t word : words) EXPECT_EQ(word, kPoison) << "written outside";
    }
    return values;
  }

 private:
  static constexpr int64_t kGuard   = 1024;
  static constexpr uint32_t kPoison = 0x7fffffff;

  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

  int64_t size_;
  char* memory_;
};

}  // namespace fathom::kernels
