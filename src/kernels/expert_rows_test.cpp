#include "kernels/expert_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/device.h"
#include "core/device_buffer.h"
#include "core/expect.h"

namespace fathom::kernels {
namespace {

constexpr int32_t kPoison = 0x7fbfffff;

class ExpertRowsTest : public testing::Test {
 protected:
  void SetUp() override {
    device = cuda_device();
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_cuda_device();
  }

  template <class T>
  DeviceBuffer<T> there(const std::vector<T>& values) const {
    DeviceBuffer<T> memory(*device, static_cast<int64_t>(values.size()));
    if (!values.empty()) device->to_device(memory.data(), values.data(), memory.bytes());
    return memory;
  }
  template <class T>
  std::vector<T> read(const DeviceBuffer<T>& memory) const {
    std::vector<T> values(static_cast<size_t>(memory.size()));
    if (!values.empty()) device->to_host(values.data(), memory.data(), memory.bytes());
    return values;
  }

  struct Sorted {
    std::vector<int32_t> first, slot;
  };
  // With guards behind both.
  Sorted sort(const std::vector<int32_t>& experts, int64_t top_k, int64_t num_experts) const {
    const auto slots   = static_cast<int64_t>(experts.size());
    const auto in      = there(experts);
    const auto first   = there(std::vector<int32_t>(static_cast<size_t>(num_experts + 1 + 8), kPoison));
    const auto slot    = there(std::vector<int32_t>(static_cast<size_t>(slots + 8), kPoison));
    const int64_t rows = top_k == 0 ? 0 : slots / top_k;
    sort_by_expert({in.data(), {rows, top_k}}, first.as({num_experts + 1}), slot.as({slots}),
                   device->stream());
    device->synchronize();
    return {read(first), read(slot)};
  }

  Device* device = nullptr;
  std::mt19937 random{5};
};

TEST_F(ExpertRowsTest, SlotsComeByExpertInTheirOrder) {
  for (const int64_t num_experts : {1, 2, 8, 31, 32, 33, 127, 128})
    for (const int64_t rows : {0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 300, 1021, 8192})
      for (const int padding : {0, 3}) {  // of ten slots
        SCOPED_TRACE(testing::Message()
                     << rows << " rows, " << num_experts << " experts, padding " << padding);
        constexpr int64_t kTopK = 4;
        std::vector<int32_t> experts;
        for (int64_t s = 0; s < rows * kTopK; ++s)
          experts.push_back(static_cast<int>(random() % 10) < padding
                                ? -1
                                : static_cast<int32_t>(random() % static_cast<uint64_t>(num_experts)));
        std::vector<int32_t> first, slot;
        for (int32_t e = 0; e < num_experts; ++e) {
          first.push_back(static_cast<int32_t>(slot.size()));
          for (size_t s = 0; s < experts.size(); ++s)
            if (experts[s] == e) slot.push_back(static_cast<int32_t>(s));
        }
        first.push_back(static_cast<int32_t>(slot.size()));
        first.resize(first.size() + 8, kPoison);
        slot.resize(experts.size() + 8, kPoison);

        const Sorted got = sort(experts, kTopK, num_experts);
        ASSERT_EQ(got.first, first);
        ASSERT_EQ(got.slot, slot);
      }
}

TEST_F(ExpertRowsTest, OneExpertTakesAllOrNobodyAny) {
  for (const int32_t e : {-1, 0, 5, 31}) {
    const std::vector<int32_t> experts(2000, e);
    const Sorted got = sort(experts, 1, 32);
    for (int32_t i = 0; i <= 32; ++i)
      EXPECT_EQ(got.first[static_cast<size_t>(i)], e >= 0 && i > e ? 2000 : 0) << i;
    for (int32_t i = 0; i < 2000; ++i) EXPECT_EQ(got.slot[static_cast<size_t>(i)], e >= 0 ? i : kPoison);
  }
}

TEST_F(ExpertRowsTest, GatheredRowsAreThoseOfTheirTokens) {
  for (const int64_t width : {8, 64, 264, 2880})
    for (const int64_t rows : {1, 9, 130}) {
      constexpr int64_t kTopK = 4, kExperts = 8;
      std::vector<int32_t> experts;
      for (int64_t s = 0; s < rows * kTopK; ++s) experts.push_back(static_cast<int32_t>(random() % 9) - 1);
      std::vector<bf16> x;
      for (int64_t i = 0; i < rows * (width + 16); ++i)
        x.push_back(bf16::from_bits(static_cast<uint32_t>(random())));
      const std::vector<bf16> poison(static_cast<size_t>((rows * kTopK + 1) * width),
                                     bf16::from_bits(0x7fbf));
      const auto in    = there(experts);
      const auto first = there(std::vector<int32_t>(kExperts + 1));
      const auto slot  = there(std::vector<int32_t>(experts.size()));
      const auto from = there(x), to = there(poison);
      sort_by_expert({in.data(), {rows, kTopK}}, first.view(), slot.view(), device->stream());
      gather_rows({from.data(), {rows, width}, {width + 16, 1}}, {first.view(), slot.view()}, kTopK,
                  {to.data(), {rows * kTopK, width}}, device->stream());
      device->synchronize();

      const std::vector<int32_t> slots = read(slot);
      const std::vector<bf16> got      = read(to);
      const int32_t count              = read(first).back();
      for (int64_t i = 0; i < rows * kTopK + 1; ++i)
        for (int64_t h = 0; h < width; ++h) {
          const uint16_t expected =
              i < count
                  ? x[static_cast<size_t>(slots[static_cast<size_t>(i)] / kTopK * (width + 16) + h)].bits
                  : uint16_t{0x7fbf};
          ASSERT_EQ(got[static_cast<size_t>(i * width + h)].bits, expected)
              << "row " << i << ", column " << h;
        }
    }
}

TEST_F(ExpertRowsTest, BrokenContractsAreNamed) {
  const auto experts = there(std::vector<int32_t>(8, 0));
  const auto first = there(std::vector<int32_t>(200)), slot = there(std::vector<int32_t>(8));
  const auto x = there(std::vector<bf16>(1024, bf16(1)));
  EXPECT_THROW(sort_by_expert({experts.data(), {4, 2}}, first.as({130}), slot.view(), nullptr),
               ContractError);
  EXPECT_THROW(sort_by_expert({experts.data(), {4, 2}}, first.as({1}), slot.view(), nullptr), ContractError);
  EXPECT_THROW(sort_by_expert({experts.data(), {4, 2}}, first.as({9}), slot.as({7}), nullptr), ContractError);
  const ExpertRows rows{first.as({9}), slot.view()};
  EXPECT_THROW(gather_rows({x.data(), {4, 12}}, rows, 2, {x.data() + 512, {8, 12}}, nullptr), ContractError);
  EXPECT_THROW(gather_rows({x.data(), {4, 16}}, rows, 2, {x.data() + 512, {4, 16}}, nullptr), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
