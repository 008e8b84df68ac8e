#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "core/arena.h"
#include "core/device.h"

namespace fathom {
namespace {

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    device = cuda_device();
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_cuda_device();
  }
  Device* device = nullptr;
};

TEST(NoCudaDevice, SaysWhyNot) {
  if (cuda_device()) GTEST_SKIP() << "there is a GPU";
  EXPECT_FALSE(why_no_cuda_device().empty());
}

TEST_F(CudaDevice, CopiesAndSetsWholeBuffersAndTails) {
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

TEST_F(CudaDevice, ChecksumSeesEveryByteAndItsPlace) {
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

TEST_F(CudaDevice, FillsHaveTheDistributionTheyPromise) {
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

TEST_F(CudaDevice, FillsDependOnTheSeedAlone) {
  for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{97}, int64_t{65537}}) {
    const auto once = filled<float>(*device, n, DType::fp32, 7, false, 0, 1);
    EXPECT_EQ(once, filled<float>(*device, n, DType::fp32, 7, false, 0, 1));
    EXPECT_NE(once, filled<float>(*device, n, DType::fp32, 8, false, 0, 1));
  }
}

TEST_F(CudaDevice, ArenaFindsWritesOutsideAndCopiesToItsTwin) {
  const auto declare = [](Arena& arena) {
    (void)arena.input<float>({1000}, Uniform{-1, 1});
    return arena.output<bf16>({777});
  };
  Arena arena(device), twin;
  const auto out    = declare(arena);
  const auto mirror = declare(twin);
  arena.fill(3);
  arena.poison(9);
  EXPECT_EQ(arena.broken_guard(), std::nullopt);
  arena.copy_to(twin);
  EXPECT_TRUE(twin.is_poison(&mirror(776), 2));
  const uint64_t inputs = arena.input_checksum();
  const uint16_t zero   = 0;
  device->to_device(const_cast<bf16*>(out.data()) + 777, &zero, 2);
  ASSERT_TRUE(arena.broken_guard());
  EXPECT_NE(arena.broken_guard()->find("output 0 was written about 0 bytes past the end"), std::string::npos)
      << *arena.broken_guard();
  arena.repair_guards();
  EXPECT_EQ(arena.broken_guard(), std::nullopt);
  EXPECT_EQ(arena.input_checksum(), inputs);
  arena.fill(4);
  EXPECT_NE(arena.input_checksum(), inputs);
}

TEST_F(CudaDevice, RefusesMoreMemoryThanThereIs) {
  EXPECT_THROW(device->allocate(int64_t{1} << 46), NotEnoughMemory);
  void* memory = device->allocate(256);  // and goes on
  device->release(memory);
}

}  // namespace
}  // namespace fathom
