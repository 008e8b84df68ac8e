#include "kernels/moe/permute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "core/expect.h"
#include "cuda/device.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

constexpr int32_t kUntouched = 0x7fffffff;  // poison of GuardedDeviceBuffer, two bf16

class ExpertRowsTest : public testing::Test {
 protected:
  void SetUp() override {
    device = find_device({0});
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }

  struct Sorted {
    std::vector<int32_t> offsets, sorted_ids;
  };
  Sorted sort(const std::vector<int32_t>& experts, int64_t top_k, int64_t num_experts) const {
    const auto expert_rows = static_cast<int64_t>(experts.size());
    const int64_t rows     = top_k == 0 ? 0 : expert_rows / top_k;
    const GuardedDeviceBuffer in(experts);
    const GuardedDeviceBuffer<int32_t> offsets(num_experts + 1), sorted_ids(expert_rows);
    sort_by_expert(in.view({rows, top_k}), offsets.view({num_experts + 1}), sorted_ids.view({expert_rows}),
                   device->stream());
    return {offsets.read(), sorted_ids.read()};
  }

  Device* device = nullptr;
  std::mt19937 random{5};
};

TEST_F(ExpertRowsTest, RowsComeByExpertInTheirOrder) {
  for (const int64_t num_experts : {1, 2, 8, 31, 32, 33, 127, 128})
    for (const int64_t rows : {0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 257, 300, 1021, 8192})
      for (const int padding : {0, 3}) {  // in ten expert rows
        SCOPED_TRACE(testing::Message()
                     << rows << " rows, " << num_experts << " experts, padding " << padding);
        constexpr int64_t kTopK = 4;
        std::vector<int32_t> experts;
        for (int64_t s = 0; s < rows * kTopK; ++s)
          experts.push_back(static_cast<int>(random() % 10) < padding
                                ? -1
                                : static_cast<int32_t>(random() % static_cast<uint64_t>(num_experts)));
        std::vector<int32_t> offsets, sorted_ids;
        for (int32_t e = 0; e < num_experts; ++e) {
          offsets.push_back(static_cast<int32_t>(sorted_ids.size()));
          for (size_t s = 0; s < experts.size(); ++s)
            if (experts[s] == e) sorted_ids.push_back(static_cast<int32_t>(s));
        }
        offsets.push_back(static_cast<int32_t>(sorted_ids.size()));
        sorted_ids.resize(experts.size(), kUntouched);

        const Sorted got = sort(experts, kTopK, num_experts);
        ASSERT_EQ(got.offsets, offsets);
        ASSERT_EQ(got.sorted_ids, sorted_ids);
      }
}

TEST_F(ExpertRowsTest, OneExpertTakesAllOrNobodyAny) {
  for (const int32_t e : {-1, 0, 5, 31}) {
    const std::vector<int32_t> experts(2000, e);
    const Sorted got = sort(experts, 1, 32);
    for (int32_t i = 0; i <= 32; ++i)
      EXPECT_EQ(got.offsets[static_cast<size_t>(i)], e >= 0 && i > e ? 2000 : 0) << i;
    for (int32_t i = 0; i < 2000; ++i)
      EXPECT_EQ(got.sorted_ids[static_cast<size_t>(i)], e >= 0 ? i : kUntouched);
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
      const GuardedDeviceBuffer in(experts);
      const GuardedDeviceBuffer from(x);
      const GuardedDeviceBuffer<int32_t> offsets(kExperts + 1), sorted_ids(size);
      const GuardedDeviceBuffer<bf16> to(size * width);
      const View<int32_t, 1> offsets_view = offsets.view({kExperts + 1}), ids = sorted_ids.view({size});
      sort_by_expert(in.view({rows, kTopK}), offsets_view, ids, device->stream());
      gather_rows({from.data(), {rows, width}, {width + 16, 1}}, {offsets_view, ids}, kTopK,
                  to.view({size, width}), device->stream());

      const std::vector<int32_t> row_ids = sorted_ids.read();
      const std::vector<bf16> got        = to.read();
      const int32_t count                = offsets.read().back();
      for (int64_t i = 0; i < size; ++i)
        for (int64_t h = 0; h < width; ++h) {
          const auto untouched = static_cast<uint16_t>(h % 2 == 0 ? kUntouched & 0xffff : kUntouched >> 16);
          const uint16_t expected =
              i < count
                  ? x[static_cast<size_t>(row_ids[static_cast<size_t>(i)] / kTopK * (width + 16) + h)].bits
                  : untouched;
          ASSERT_EQ(got[static_cast<size_t>(i * width + h)].bits, expected)
              << "row " << i << ", column " << h;
        }
    }
}

TEST_F(ExpertRowsTest, BrokenContractsAreNamed) {
  const GuardedDeviceBuffer<int32_t> experts(8), offsets(200), sorted_ids(8);
  const GuardedDeviceBuffer<bf16> x(1024);
  const auto sort = [&](int64_t offsets_view, int64_t expert_rows) {
    sort_by_expert(experts.view({4, 2}), offsets.view({offsets_view}), sorted_ids.view({expert_rows}),
                   nullptr);
  };
  EXPECT_THROW(sort(130, 8), ContractError);
  EXPECT_THROW(sort(1, 8), ContractError);
  EXPECT_THROW(sort(9, 7), ContractError);
  const ExpertRows rows{offsets.view({9}), sorted_ids.view({8})};
  EXPECT_THROW(gather_rows(x.view({4, 12}), rows, 2, {x.data() + 512, {8, 12}}, nullptr), ContractError);
  EXPECT_THROW(gather_rows(x.view({4, 16}), rows, 2, {x.data() + 512, {4, 16}}, nullptr), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
