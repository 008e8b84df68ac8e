#include "kernels/norm/rmsnorm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"

namespace fathom::kernels {
namespace {

struct Rows {
  int64_t count, width, stride;
  std::vector<float> x, weight;

  Rows(int64_t count, int64_t width, int64_t gap = 0)
      : count(count),
        width(width),
        stride(width + gap),
        x(static_cast<size_t>(count * stride)),
        weight(static_cast<size_t>(width)) {
    fill_normal(x.data(), count * stride, 1, 0, 3);
    fill_uniform(weight.data(), width, 2, 0.5, 1.5);
  }

  View<const float, 2> in() const { return {x.data(), {count, width}, {stride, 1}}; }
};

std::vector<float> normalized(decltype(&rmsnorm_reference) op, const Rows& rows, double eps,
                              int threads = 1) {
  ThreadPool pool(threads);
  std::vector<float> y(static_cast<size_t>(rows.count * rows.width), NAN);
  op(rows.in(), {rows.weight.data(), {rows.width}}, eps, {y.data(), {rows.count, rows.width}},
     {.threads = &pool});
  return y;
}

TEST(Rmsnorm, TheReferenceByHand) {
  Rows rows(1, 2);
  rows.x             = {3, -4};
  rows.weight        = {2, 1};
  const double scale = 1 / std::sqrt(12.5 + 0.5);
  EXPECT_EQ(normalized(rmsnorm_reference, rows, 0.5),
            (std::vector<float>{static_cast<float>(6 * scale), static_cast<float>(-4 * scale)}));
}

TEST(Rmsnorm, AgreesWithTheReference) {
  for (const int64_t width : {1, 7, 15, 16, 17, 63, 64, 65, 127, 2879, 2880})
    for (const int64_t count : {0, 1, 5}) {
      SCOPED_TRACE(testing::Message() << count << " x " << width);
      const Rows rows(count, width, 3);
      const auto expected = normalized(rmsnorm_reference, rows, 1e-5);
      for_each_simd_target([&] {
        const auto got = normalized(rmsnorm_cpu, rows, 1e-5, 2);
        // A lane sums positive numbers in at most 45 steps; then two products: 64 u at most.
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_LE(std::abs(got[i] - expected[i]), 64 * 6e-8 * std::abs(expected[i])) << "at " << i;
      });
    }
}

TEST(Rmsnorm, ARowsBitsDependOnNothingButTheRow) {
  const Rows rows(7, 2880);
  for_each_simd_target([&] {
    const auto whole = normalized(rmsnorm_cpu, rows, 1e-5);
    EXPECT_EQ(normalized(rmsnorm_cpu, rows, 1e-5, 3), whole);
    Rows one(1, 2880);
    one.x.assign(rows.x.begin() + 3 * 2880, rows.x.begin() + 4 * 2880);
    EXPECT_EQ(normalized(rmsnorm_cpu, one, 1e-5),
              std::vector<float>(whole.begin() + 3 * 2880, whole.begin() + 4 * 2880));
  });
}

TEST(Rmsnorm, InPlace) {
  const Rows rows(3, 100);
  for_each_simd_target([&] {
    ThreadPool pool(2);
    std::vector<float> x = rows.x;
    rmsnorm_cpu({x.data(), {3, 100}}, {rows.weight.data(), {100}}, 1e-5, {x.data(), {3, 100}},
                {.threads = &pool});
    EXPECT_EQ(x, normalized(rmsnorm_cpu, rows, 1e-5));
  });
}

// Zeros stay zeros because of eps, and numbers far from 1 neither overflow nor underflow.
TEST(Rmsnorm, ZerosAndLargeNumbers) {
  for_each_simd_target([&] {
    Rows rows(3, 20);
    std::fill_n(rows.x.begin(), 20, 0.0f);
    std::fill_n(rows.x.begin() + 20, 20, 1e15f);
    std::fill_n(rows.x.begin() + 40, 20, 1e-15f);
    const auto y = normalized(rmsnorm_cpu, rows, 1e-5);
    for (size_t h = 0; h < 20; ++h) {
      EXPECT_EQ(y[h], 0);
      EXPECT_FLOAT_EQ(y[20 + h], rows.weight[h]);
      EXPECT_NEAR(y[40 + h], 1e-15 / std::sqrt(1e-5) * rows.weight[h], 1e-18);
    }
  });
}

TEST(Rmsnorm, ShapesThatDoNotFitAreABrokenContract) {
  ThreadPool pool(1);
  std::vector<float> numbers(12);
  const Execution on{.threads = &pool};
  for (const auto op : {rmsnorm_reference, rmsnorm_cpu}) {
    EXPECT_THROW(op({numbers.data(), {2, 3}}, {numbers.data(), {2}}, 0, {numbers.data(), {2, 3}}, on),
                 ContractError);
    EXPECT_THROW(op({numbers.data(), {2, 3}}, {numbers.data(), {3}}, 0, {numbers.data(), {3, 2}}, on),
                 ContractError);
  }
}

}  // namespace
}  // namespace fathom::kernels
