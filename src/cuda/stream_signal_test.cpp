#include "cuda/stream_signal.h"

#include <gtest/gtest.h>

#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "cuda/side_stream.h"

namespace fathom {
namespace {

class StreamSignal : public testing::Test {
 protected:
  void SetUp() override {
    device = find_device({0});
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
    device->make_current();
    words = {*device, 2};
    device->set_words(words.data(), words.bytes(), 0);
  }
  uint32_t word(int64_t i) const {
    uint32_t value = 0;
    device->to_host(&value, words.data() + i, sizeof value);
    return value;
  }

  Device* device = nullptr;
  DeviceBuffer<uint32_t> words;
};

TEST_F(StreamSignal, WhatComesAfterTheWaitSeesWhatCameBeforeTheSignal) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const DeviceBuffer<uint8_t> from(*device, kBytes), to(*device, kBytes);
  const SideStream waits(SideStream::Priority::first), signals;
  for (uint32_t step = 1; step <= 3; ++step) {
    // The wait is enqueued first: without it the copy would run before the fill.
    wait_for_signal(waits.get(), words.data(), step);
    FATHOM_CUDA(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, waits.get()));
    EXPECT_EQ(cudaStreamQuery(waits.get()), cudaErrorNotReady);
    FATHOM_CUDA(cudaMemsetAsync(from.data(), static_cast<int>(step), kBytes, signals.get()));
    signal(signals.get(), words.data(), step);
    FATHOM_CUDA(cudaStreamSynchronize(waits.get()));
    for (const int64_t at : {int64_t{0}, kBytes / 2, kBytes - 1}) {
      uint8_t byte = 0;
      device->to_host(&byte, to.data() + at, 1);
      EXPECT_EQ(byte, step);
    }
    EXPECT_EQ(word(0), step);
    EXPECT_EQ(word(1), 0u);
  }
}

// Values are compared by their difference as a signed number, so a counter may pass 2^32.
TEST_F(StreamSignal, ALaterValueIsEnough) {
  const SideStream stream;
  signal(stream.get(), words.data(), 5);
  wait_for_signal(stream.get(), words.data(), 3);
  signal(stream.get(), words.data(), 0);
  wait_for_signal(stream.get(), words.data(), 0xFFFFFFFFu);
  FATHOM_CUDA(cudaStreamSynchronize(stream.get()));
  EXPECT_EQ(word(0), 0u);
}

}  // namespace
}  // namespace fathom
