// For tests: an array in device memory, poisoned where it has not been written, between guard bands.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/device.h"
#include "core/view.h"

namespace fathom::kernels {

template <class T>
class DeviceVector {
 public:
  // Poison is NaN as fp32 and as bf16, and the largest int32.
  explicit DeviceVector(int64_t size)
      : size_(size), memory_(static_cast<char*>(cuda_device()->allocate(bytes() + 2 * kGuard))) {
    cuda_device()->set_words(memory_, bytes() + 2 * kGuard, kPoison);
  }
  explicit DeviceVector(const std::vector<T>& values) : DeviceVector(static_cast<int64_t>(values.size())) {
    write(values);
  }
  ~DeviceVector() { cuda_device()->release(memory_); }
  DeviceVector(const DeviceVector&)            = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;

  int64_t size() const { return size_; }
  T* data() const { return reinterpret_cast<T*>(memory_ + kGuard); }
  template <int kRank>
  View<T, kRank> view(const int64_t (&extents)[kRank]) const {
    return {data(), extents};
  }

  void write(const std::vector<T>& values) {
    if (size_ > 0) cuda_device()->to_device(data(), values.data(), bytes());
  }

  // What the kernels before have left, guard bands untouched.
  std::vector<T> read() const {
    cuda_device()->synchronize();
    std::vector<T> values(static_cast<size_t>(size_));
    if (size_ > 0) cuda_device()->to_host(values.data(), data(), bytes());
    for (const char* band : {memory_, memory_ + kGuard + (bytes() + 3) / 4 * 4}) {
      std::vector<uint32_t> words(kGuard / 4 - 1);
      cuda_device()->to_host(words.data(), band, kGuard - 4);
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
