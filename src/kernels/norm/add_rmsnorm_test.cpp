#include "kernels/norm/add_rmsnorm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"
#include "cuda/device.h"
#include "kernels/guarded_device_buffer.h"
#include "kernels/norm/rmsnorm.h"

namespace fathom::kernels {
namespace {

constexpr float kEps = 1e-5f;

class FoldNorm : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
};

struct Rows {
  int64_t count, top_k, width;
  std::vector<float> x, expert_outputs, weight;

  Rows(int64_t count, int64_t top_k, int64_t width)
      : count(count),
        top_k(top_k),
        width(width),
        x(static_cast<size_t>(count * width)),
        expert_outputs(static_cast<size_t>(count * top_k * width)),
        weight(static_cast<size_t>(width)) {
    fill_normal(x.data(), count * width, 1, 0, 3);
    fill_normal(expert_outputs.data(), count * top_k * width, 2, 0, 1);
    fill_uniform(weight.data(), width, 3, 0.5, 1.5);
  }

  // x + expert outputs, in double.
  std::vector<double> sums() const {
    std::vector<double> sums(x.begin(), x.end());
    for (int64_t t = 0; t < count; ++t)
      for (int64_t k = 0; k < top_k; ++k)
        for (int64_t h = 0; h < width; ++h)
          sums[static_cast<size_t>(t * width + h)] +=
              expert_outputs[static_cast<size_t>((t * top_k + k) * width + h)];
    return sums;
  }
};

struct Folded {
  std::vector<float> x;
  std::vector<bf16> y;
};

Folded fold(const Rows& rows) {
  GuardedDeviceBuffer<float> x(rows.x), expert_outputs(rows.expert_outputs), weight(rows.weight);
  GuardedDeviceBuffer<bf16> y(rows.count * rows.width);
  add_rmsnorm(x.view<2>({rows.count, rows.width}),
              expert_outputs.view<3>({rows.count, rows.top_k, rows.width}), weight.view<1>({rows.width}),
              kEps, y.view<2>({rows.count, rows.width}), find_device({0})->stream());
  return {x.read(), y.read()};
}

bool same_bits(const std::vector<bf16>& a, const std::vector<bf16>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(bf16)) == 0);
}

// Expects y to be the norm of the stored x. The squares, all of one sign, are summed in 4 + 5 + 5 additions a
// chain or a few more: 16 u cover them, the root and the products. Then half an ulp of bf16.
void expect_normalized(const std::vector<float>& x, const std::vector<float>& weight, int64_t width,
                       const std::vector<bf16>& y) {
  const auto count = static_cast<int64_t>(x.size()) / width;
  std::vector<float> expected(x.size());
  rmsnorm_reference({x.data(), {count, width}}, {weight.data(), {width}}, static_cast<double>(kEps),
                    {expected.data(), {count, width}}, {});
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_LE(std::abs(static_cast<float>(y[i]) - expected[i]),
              (0x1p-8 + 16 * 0x1p-24) * std::abs(expected[i]))
        << "at " << i;
}

TEST_F(FoldNorm, AgreesWithTheReferences) {
  for (const int64_t width : {4, 64, 128, 256, 320, 2880, 3072})
    for (const int64_t top_k : {0, 1, 4, 5, 8})
      for (const int64_t count : {0, 1, 2, 7, 8, 9, 33, 34, 63, 129}) {
        SCOPED_TRACE(testing::Message() << count << " x " << top_k << " x " << width);
        const Rows rows(count, top_k, width);
        const auto sums   = rows.sums();
        const auto [x, y] = fold(rows);
        for (size_t i = 0; i < x.size(); ++i)  // top_k + 1 numbers of at most 18 in magnitude
          ASSERT_LE(std::abs(x[i] - sums[i]), 4 * std::sqrt(9) * 0x1p-24 * 18) << "at " << i;
        if (top_k == 0) {
          EXPECT_EQ(x, rows.x);
        }
        ASSERT_NO_FATAL_FAILURE(expect_normalized(x, rows.weight, width, y));
      }
}

// A row alone and a row among many, which are different launches, have the same bits.
TEST_F(FoldNorm, ARowsBitsDependOnNothingButTheRow) {
  for (const int64_t width : {256, 320, 2880}) {
    const Rows rows(300, 4, width);
    const auto many = fold(rows), again = fold(rows);
    EXPECT_EQ(many.x, again.x);
    EXPECT_TRUE(same_bits(many.y, again.y));
    for (const int64_t t : {0, 7, 299}) {
      Rows one(1, 4, width);
      one.x.assign(rows.x.begin() + t * width, rows.x.begin() + (t + 1) * width);
      one.expert_outputs.assign(rows.expert_outputs.begin() + t * 4 * width,
                                rows.expert_outputs.begin() + (t + 1) * 4 * width);
      const auto alone = fold(one);
      EXPECT_EQ(alone.x, std::vector<float>(many.x.begin() + t * width, many.x.begin() + (t + 1) * width));
      EXPECT_TRUE(same_bits(alone.y,
                            std::vector<bf16>(many.y.begin() + t * width, many.y.begin() + (t + 1) * width)));
    }
  }
}

TEST_F(FoldNorm, NamedRowsAndPadding) {
  for (const int64_t width : {64, 2880})
    for (const int64_t top_k : {0, 4})
      for (const int64_t count : {0, 1, 2, 9, 63, 129}) {
        SCOPED_TRACE(testing::Message() << count << " of " << top_k << " x " << width);
        const Rows all(70, top_k, width);
        const auto whole = fold(all);
        std::vector<int32_t> rows(static_cast<size_t>(count));
        for (size_t r = 0; r < rows.size(); ++r)
          rows[r] = r % 4 == 1 ? -1 : static_cast<int32_t>(r * 13 % 70);
        GuardedDeviceBuffer<float> x(all.x), expert_outputs(all.expert_outputs), weight(all.weight);
        GuardedDeviceBuffer<int32_t> on_rows(rows);
        GuardedDeviceBuffer<bf16> y(count * width);
        add_rmsnorm_rows(x.view<2>({70, width}), expert_outputs.view<3>({70, top_k, width}),
                         on_rows.view<1>({count}), weight.view<1>({width}), kEps, y.view<2>({count, width}),
                         find_device({0})->stream());
        const auto got = y.read();
        EXPECT_EQ(x.read(), all.x);
        for (int64_t r = 0; r < count; ++r) {
          std::vector<bf16> expected(static_cast<size_t>(width), bf16(0));
          const int32_t row = rows[static_cast<size_t>(r)];
          if (row >= 0) expected.assign(whole.y.begin() + row * width, whole.y.begin() + (row + 1) * width);
          EXPECT_TRUE(same_bits({got.begin() + r * width, got.begin() + (r + 1) * width}, expected)) << r;
        }
      }
}

TEST_F(FoldNorm, ShapesThatDoNotFitAreABrokenContract) {
  GuardedDeviceBuffer<float> x(3076);
  GuardedDeviceBuffer<bf16> y(3076);
  const auto with = [&](int64_t width, int64_t of_weight, float eps) {
    add_rmsnorm(x.view<2>({1, width}), {}, x.view<1>({of_weight}), eps, y.view<2>({1, width}), nullptr);
  };
  EXPECT_THROW(with(3076, 3076, kEps), ContractError);
  EXPECT_THROW(with(6, 6, kEps), ContractError);
  EXPECT_THROW(with(8, 4, kEps), ContractError);
  EXPECT_THROW(with(8, 8, 0), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
