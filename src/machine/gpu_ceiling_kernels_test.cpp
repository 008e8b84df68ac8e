#include "machine/gpu_ceiling_kernels.h"

#include <gtest/gtest.h>

#include "core/expect.h"
#include "cuda/device.h"

namespace fathom::machine {
namespace {

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!gpu_kernels()) GTEST_SKIP() << "built without CUDA";
    if (!find_device({0})) GTEST_SKIP() << why_no_device({0});
    device_ = find_device({0});
    memory_ = static_cast<std::byte*>(device_->allocate(kBytes));
    device_->set_words(memory_, kBytes, 0x01020304u);
  }
  void TearDown() override {
    if (device_) device_->release(memory_);
  }

  std::vector<uint32_t> words(const std::byte* from, int64_t count) const {
    std::vector<uint32_t> words(count);
    device_->synchronize();
    device_->to_host(words.data(), from, count * 4);
    return words;
  }

  static constexpr int64_t kBytes = 64 << 20, kSink = kBytes - 256;
  Device* device_    = nullptr;
  std::byte* memory_ = nullptr;
  const GpuKernels& k() const { return *gpu_kernels(); }
};

// Sizes around the chunk of 32 KiB, and sizes that are no multiple of 16.
TEST_F(OnGpu, CopiesWholeVectorsAndNothingElse) {
  for (const int64_t bytes : {0, 15, 16, 17, 32752, 32768, 32784, 100000, 8 << 20, (8 << 20) + 48}) {
    std::byte* const to = memory_ + (32 << 20);
    device_->fill_uniform(memory_, bytes / 4 + 8, DType::uint32, 7, 0, 1u << 31);
    device_->set_words(to, bytes + 64, 0xDEADBEEFu);
    const int64_t copied = bytes / 16 * 16;
    EXPECT_EQ(k().copy(to, memory_, bytes, device_->stream()), 2.0 * static_cast<double>(copied));
    const auto source = words(memory_, copied / 4), target = words(to, copied / 4 + 4);
    EXPECT_TRUE(std::equal(source.begin(), source.end(), target.begin())) << bytes;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(target[copied / 4 + i], 0xDEADBEEFu) << bytes;
  }
}

TEST_F(OnGpu, WritesWholeVectorsAndNothingElse) {
  for (const int64_t bytes : {0, 16, 32768, 32784, 1 << 20, (4 << 20) + 80}) {
    device_->set_words(memory_, bytes + 64, 0xDEADBEEFu);
    EXPECT_EQ(k().write(memory_, bytes, device_->stream()), static_cast<double>(bytes));
    const auto seen = words(memory_, bytes / 4 + 4);
    for (int64_t i = 0; i < bytes / 4; ++i) ASSERT_NE(seen[i], 0xDEADBEEFu) << i << " of " << bytes / 4;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(seen[bytes / 4 + i], 0xDEADBEEFu) << bytes;
  }
}

TEST_F(OnGpu, CopiesRepeatedlyWithinTheRange) {
  constexpr int64_t kRange = 3 << 15;
  std::byte* const to      = memory_ + (32 << 20);
  device_->fill_uniform(memory_, kRange / 4, DType::uint32, 7, 0, 1u << 31);
  device_->set_words(to, kRange + 64, 0xDEADBEEFu);
  EXPECT_EQ(k().copy_repeatedly(to, memory_, kRange + 16, 5, device_->stream()), 2.0 * 5 * kRange);
  const auto source = words(memory_, kRange / 4), target = words(to, kRange / 4 + 4);
  EXPECT_TRUE(std::equal(source.begin(), source.end(), target.begin()));
  EXPECT_EQ(target.back(), 0xDEADBEEFu);
  EXPECT_EQ(k().write_repeatedly(to, kRange, 2, device_->stream()), 2.0 * kRange);
  EXPECT_GT(k().read_repeatedly(memory_, kRange, 2, memory_ + kSink, device_->stream()), 2.0 * kRange);
  device_->synchronize();
  EXPECT_THROW(k().read_repeatedly(memory_, 1024, 1, memory_ + kSink, device_->stream()), ContractError);
}

TEST_F(OnGpu, ChasesTheCycleItLaid) {
  constexpr int64_t kLines = 1 << 12;
  EXPECT_EQ(k().make_cycle(memory_, (kLines + 100) * kGpuLine, device_->stream()),
            static_cast<double>(kLines * kGpuLine));
  for (const int64_t loads : {8, 80, 4096, 5000}) {
    EXPECT_EQ(k().chase(memory_ + 3 * kGpuLine, loads, memory_ + kSink, device_->stream()),
              static_cast<double>((loads + 7) / 8 * 8));
    int64_t line = 3;
    for (int64_t i = 0; i < (loads + 7) / 8 * 8; ++i) line = next_line(line, kLines);
    void* end = nullptr;
    device_->synchronize();
    device_->to_host(&end, memory_ + kSink, sizeof end);
    EXPECT_EQ(end, memory_ + line * kGpuLine) << loads;
  }
}

TEST_F(OnGpu, CountsItsArithmetic) {
  for (const DType type : {DType::fp32, DType::fp64, DType::fp16, DType::bf16}) {
    const double one = k().fma(type, 1, memory_ + kSink, device_->stream());
    EXPECT_GT(one, 0);
    EXPECT_EQ(k().fma(type, 3, memory_ + kSink, device_->stream()), 3 * one);
  }
  for (const DType type : {DType::fp32, DType::fp16, DType::bf16}) {
    const double one = k().mma(type, 1, memory_ + kSink, device_->stream());
    EXPECT_GT(one, 0);
    EXPECT_EQ(k().mma_of_zeros(type, 3, memory_ + kSink, device_->stream()), 3 * one);
  }
  EXPECT_GT(k().shared_read(2, memory_ + kSink, device_->stream()), 0);
  EXPECT_GT(k().l1_read(memory_, 2, memory_ + kSink, device_->stream()), 0);
  EXPECT_EQ(k().nothing(device_->stream()), 1);
  device_->synchronize();
  EXPECT_THROW(k().fma(DType::int8, 1, memory_ + kSink, device_->stream()), ContractError);
  EXPECT_THROW(k().mma(DType::int32, 1, memory_ + kSink, device_->stream()), ContractError);
}

}  // namespace
}  // namespace fathom::machine
