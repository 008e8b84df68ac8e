#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/expect.h"
#include "cuda/device.h"

namespace fathom {
namespace {

// On the first two GPUs; the second is skipped, with the reason, where this process sees one.
class CudaDevice : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    device = find_device(id());
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device(id());
  }
  static DeviceId id() { return {GetParam()}; }
  Device* device = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Visible, CudaDevice, testing::Values(0, 1),
                         [](const auto& tested) { return "cuda" + std::to_string(tested.param); });

TEST(NoCudaDevice, SaysWhyNot) {
  const DeviceId beyond{kMaxGpus - 1};
  EXPECT_EQ(find_device(beyond), nullptr);
  EXPECT_FALSE(why_no_device(beyond).empty());
  EXPECT_THROW((void)device(beyond), SystemError);
  if (device_count() > 0)
    EXPECT_NE(why_no_device(beyond).find("cuda:63: this process sees "), std::string::npos);
  else
    EXPECT_EQ(find_device({0}), nullptr);
}

TEST_P(CudaDevice, IsOneObjectForEachGpu) {
  EXPECT_LT(GetParam(), device_count());
  EXPECT_EQ(device->id(), id());
  EXPECT_EQ(&fathom::device(id()), device);
  EXPECT_EQ(why_no_device(id()), "");
  EXPECT_NE(device, find_device({1 - GetParam()}));
}

TEST_P(CudaDevice, CopiesAndSetsWholeBuffersAndTails) {
  for (const int64_t bytes : {int64_t{1}, int64_t{3}, int64_t{4}, int64_t{4099}, (int64_t{64} << 20) + 5}) {
    void* memory = device->allocate(bytes + 8);
    std::vector<uint8_t> sent(static_cast<size_t>(bytes)), back(static_cast<size_t>(bytes) + 8, 0xEE);
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<uint8_t>(i * 7 + i / 251);
    device->set_words(memory, bytes + 8, 0x11223344);
    device->to_device(memory, sent.data(), bytes);
    device->to_host(back.data(), memory, bytes + 8);
    EXPECT_EQ(0, std::memcmp(back.data(), sent.data(), sent.size())) << bytes;
    for (size_t i = sent.size(); i < back.size(); ++i)
      EXPECT_EQ(back[i], static_cast<uint8_t>(0x11223344u >> 8 * (i % 4)))
          << "byte " << i << " of " << back.size();
    device->release(memory);
  }
}

TEST_P(CudaDevice, ChecksumSeesEveryByteAndItsPlace) {
  constexpr int64_t kBytes = 1000003;
  void* memory             = device->allocate(kBytes);
  device->fill_uniform(memory, kBytes, DType::uint8, 1, 0, 256);
  const uint64_t whole = device->checksum(memory, kBytes);
  EXPECT_EQ(device->checksum(memory, kBytes), whole);
  EXPECT_NE(device->checksum(memory, kBytes - 1), whole);
  std::vector<uint8_t> host(kBytes);
  device->to_host(host.data(), memory, kBytes);
  for (const int64_t at : {int64_t{0}, int64_t{8}, int64_t{500000}, kBytes - 1}) {
    auto changed = host;
    changed[static_cast<size_t>(at)] ^= 1;
    device->to_device(memory, changed.data(), kBytes);
    EXPECT_NE(device->checksum(memory, kBytes), whole) << "byte " << at;
  }
  auto swapped = host;
  std::swap_ranges(swapped.begin(), swapped.begin() + 8, swapped.begin() + 8);
  device->to_device(memory, swapped.data(), kBytes);
  EXPECT_NE(device->checksum(memory, kBytes), whole) << "two words changed places";
  device->release(memory);
}

template <class T>
std::vector<double> filled(Device& device, int64_t n, DType type, uint64_t seed, bool normal, double a,
                           double b) {
  void* memory = device.allocate(n * static_cast<int64_t>(sizeof(T)) + 1);
  if (normal)
    device.fill_normal(memory, n, type, seed, a, b);
  else
    device.fill_uniform(memory, n, type, seed, a, b);
  std::vector<T> host(static_cast<size_t>(n));
  device.to_host(host.data(), memory, n * static_cast<int64_t>(sizeof(T)));
  device.release(memory);
  std::vector<double> values;
  for (const T& x : host) {
    if constexpr (std::is_arithmetic_v<T>)
      values.push_back(static_cast<double>(x));
    else
      values.push_back(static_cast<float>(x));
  }
  return values;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum / static_cast<double>(values.size());
}
double deviation(const std::vector<double>& values) {
  const double m = mean(values);
  double sum     = 0;
  for (const double x : values) sum += (x - m) * (x - m);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST_P(CudaDevice, FillsHaveTheDistributionTheyPromise) {
  constexpr int64_t n = 1 << 20;
  const double close  = 6 / std::sqrt(static_cast<double>(n));
  const auto uniform  = [&](const std::vector<double>& values, double lo, double hi) {
    EXPECT_GE(*std::min_element(values.begin(), values.end()), lo);
    EXPECT_LE(*std::max_element(values.begin(), values.end()), hi);
    EXPECT_NEAR(mean(values), (lo + hi) / 2, (hi - lo) * close);
    EXPECT_NEAR(deviation(values), (hi - lo) / std::sqrt(12), (hi - lo) * close);
  };
  uniform(filled<float>(*device, n, DType::fp32, 1, false, -1, 3), -1, 3);
  uniform(filled<double>(*device, n, DType::fp64, 2, false, -1, 3), -1, 3);
  const auto bf = filled<bf16>(*device, n, DType::bf16, 3, false, -1, 1);
  EXPECT_NEAR(mean(bf), 0, 2 * close);
  const auto normal = filled<float>(*device, n, DType::fp32, 4, true, 5, 2);
  EXPECT_NEAR(mean(normal), 5, 2 * close);
  EXPECT_NEAR(deviation(normal), 2, 4 * close);

  const auto integers = filled<int32_t>(*device, n, DType::int32, 5, false, -3, 4);  // [-3, 4)
  EXPECT_EQ(std::set<double>(integers.begin(), integers.end()), (std::set<double>{-3, -2, -1, 0, 1, 2, 3}));
  EXPECT_NEAR(mean(integers), 0, 4 * close);
}

TEST_P(CudaDevice, FillsDependOnTheSeedAlone) {
  for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{97}, int64_t{65537}}) {
    const auto once = filled<float>(*device, n, DType::fp32, 7, false, 0, 1);
    EXPECT_EQ(once, filled<float>(*device, n, DType::fp32, 7, false, 0, 1));
    EXPECT_NE(once, filled<float>(*device, n, DType::fp32, 8, false, 0, 1));
  }
}

// Every call works while another GPU, or none yet, is the thread's current one.
TEST_P(CudaDevice, WorksFromAThreadThatNeverChoseAGpu) {
  const auto expected = filled<float>(*device, 10007, DType::fp32, 9, false, 0, 1);
  std::vector<double> found;
  std::thread([&] { found = filled<float>(*device, 10007, DType::fp32, 9, false, 0, 1); }).join();
  EXPECT_EQ(found, expected);
}

// Two GPUs at once, with the other one current: kernels of one do not run on the other, and the numbers do
// not depend on the GPU.
TEST_P(CudaDevice, IsApartFromTheOtherGpu) {
  Device* other = find_device({1 - GetParam()});
  if (!other) GTEST_SKIP() << "needs two GPUs: " << why_no_device({1 - GetParam()});
  constexpr int64_t kWords = 100003, kBytes = 4 * kWords;
  other->make_current();
  void *ours = device->allocate(kBytes), *theirs = other->allocate(kBytes);
  EXPECT_NE(device->stream(), other->stream());
  device->set_words(ours, kBytes, 0x11111111u);
  other->set_words(theirs, kBytes, 0x22222222u);
  std::vector<uint32_t> back(kWords);
  device->to_host(back.data(), ours, kBytes);
  EXPECT_EQ(std::count(back.begin(), back.end(), 0x11111111u), kWords);
  other->to_host(back.data(), theirs, kBytes);
  EXPECT_EQ(std::count(back.begin(), back.end(), 0x22222222u), kWords);

  device->fill_uniform(ours, kWords, DType::fp32, 5, -1, 1);
  other->fill_uniform(theirs, kWords, DType::fp32, 5, -1, 1);
  EXPECT_EQ(device->checksum(ours, kBytes), other->checksum(theirs, kBytes));
  device->flush_l2();
  device->synchronize();
  EXPECT_EQ(device->restore_l2(), std::nullopt);
  device->release(ours);
  other->release(theirs);
}

TEST_P(CudaDevice, RefusesMoreMemoryThanThereIs) {
  EXPECT_THROW(device->allocate(int64_t{1} << 46), NotEnoughMemory);
  void* memory = device->allocate(256);  // later allocations work
  device->release(memory);
}

}  // namespace
}  // namespace fathom
