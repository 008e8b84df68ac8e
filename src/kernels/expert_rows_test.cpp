#include "kernels/expert_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/device.h"
#include "core/expect.h"
#include "kernels/device_vector.h"

namespace fathom::kernels {
namespace {

constexpr int32_t kUntouched = 0x7fffffff;  // poison of DeviceVector, two bf16

class ExpertRowsTest : public testing::Test {
 protected:
  void SetUp() override {
    device = cuda_device();
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_cuda_device();
  }

  struct Sorted {
    std::vector<int32_t> first, slot;
  };
  Sorted sort(const std::vector<int32_t>& experts, int64_t top_k, int64_t num_experts) const {
    const auto slots   = static_cast<int64_t>(experts.size());
    const int64_t rows = top_k == 0 ? 0 : slots / top_k;
    const DeviceVector in(experts);
    const DeviceVector<int32_t> first(num_experts + 1), slot(slots);
    sort_by_expert(in.view({rows, top_k}), first.view({num_experts + 1}), slot.view({slots}),
                   device->stream());
    return {first.read(), slot.read()};
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
        slot.resize(experts.size(), kUntouched);

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
    for (int32_t i = 0; i < 2000; ++i) EXPECT_EQ(got.slot[static_cast<size_t>(i)], e >= 0 ? i : kUntouched);
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
      const int64_t size = rows * kTopK;
      const DeviceVector in(experts);
      const DeviceVector from(x);
      const DeviceVector<int32_t> first(kExperts + 1), slot(size);
      const DeviceVector<bf16> to(size * width);
      const View<int32_t, 1> firsts = first.view({kExperts + 1}), its_slots = slot.view({size});
      sort_by_expert(in.view({rows, kTopK}), firsts, its_slots, device->stream());
      gather_rows({from.data(), {rows, width}, {width + 16, 1}}, {firsts, its_slots}, kTopK,
                  to.view({size, width}), device->stream());

      const std::vector<int32_t> slots = slot.read();
      const std::vector<bf16> got      = to.read();
      const int32_t count              = first.read().back();
      for (int64_t i = 0; i < size; ++i)
        for (int64_t h = 0; h < width; ++h) {
          const auto untouched = static_cast<uint16_t>(h % 2 == 0 ? kUntouched & 0xffff : kUntouched >> 16);
          const uint16_t expected =
              i < count
                  ? x[static_cast<size_t>(slots[static_cast<size_t>(i)] / kTopK * (width + 16) + h)].bits
                  : untouched;
          ASSERT_EQ(got[static_cast<size_t>(i * width + h)].bits, expected)
              << "row " << i << ", column " << h;
        }
    }
}

TEST_F(ExpertRowsTest, BrokenContractsAreNamed) {
  const DeviceVector<int32_t> experts(8), first(200), slot(8);
  const DeviceVector<bf16> x(1024);
  const auto sort = [&](int64_t firsts, int64_t slots) {
    sort_by_expert(experts.view({4, 2}), first.view({firsts}), slot.view({slots}), nullptr);
  };
  EXPECT_THROW(sort(130, 8), ContractError);
  EXPECT_THROW(sort(1, 8), ContractError);
  EXPECT_THROW(sort(9, 7), ContractError);
  const ExpertRows rows{first.view({9}), slot.view({8})};
  EXPECT_THROW(gather_rows(x.view({4, 12}), rows, 2, {x.data() + 512, {8, 12}}, nullptr), ContractError);
  EXPECT_THROW(gather_rows(x.view({4, 16}), rows, 2, {x.data() + 512, {4, 16}}, nullptr), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
