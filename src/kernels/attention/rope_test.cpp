#include "kernels/attention/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"

namespace fathom::kernels {
namespace {

std::vector<float> table_of(const std::vector<int32_t>& positions, const std::vector<float>& frequencies,
                            float concentration) {
  const auto T = static_cast<int64_t>(positions.size()), half = static_cast<int64_t>(frequencies.size());
  std::vector<float> table(static_cast<size_t>(2 * T * half), NAN);
  rope_table_reference({positions.data(), {T}}, {frequencies.data(), {half}}, concentration,
                       {table.data(), {T, 2 * half}}, {});
  return table;
}

struct Rotation {
  int64_t tokens, heads, head_dim;
  std::vector<float> x, table;

  Rotation(int64_t tokens, int64_t heads, int64_t head_dim)
      : tokens(tokens), heads(heads), head_dim(head_dim), x(static_cast<size_t>(tokens * heads * head_dim)) {
    std::vector<int32_t> positions(static_cast<size_t>(tokens));
    for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(100 + 977 * t);
    std::vector<float> frequencies(static_cast<size_t>(head_dim / 2));
    for (size_t k = 0; k < frequencies.size(); ++k) frequencies[k] = std::pow(0.7f, static_cast<float>(k));
    fill_uniform(x.data(), static_cast<int64_t>(x.size()), 1, -2, 2);
    table = table_of(positions, frequencies, 1.25f);
  }

  std::vector<float> rotated(decltype(&rope_reference) op, int threads) const {
    ThreadPool pool(threads);
    std::vector<float> out = x;
    op({out.data(), {tokens, heads, head_dim}}, {table.data(), {tokens, head_dim}}, {.threads = &pool});
    return out;
  }
};

// The halves of a head are the real and imaginary parts, not its even and odd numbers.
TEST(Rope, TheReferenceByHand) {
  const auto table = table_of({0, 3}, {0.5f, 0.25f}, 2);
  const std::vector<float> expected{
      2, 2, 0, 0, 2 * std::cos(1.5f), 2 * std::cos(0.75f), 2 * std::sin(1.5f), 2 * std::sin(0.75f)};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(table[i], expected[i]);

  std::vector<float> x{1, 2, 3, 4};
  const std::vector<float> quarter{0, 1, 2, 0};  // rotates by 90 degrees and doubles the length; no rotation
  rope_reference({x.data(), {1, 1, 4}}, {quarter.data(), {1, 4}}, {});
  EXPECT_EQ(x, (std::vector<float>{-6, 2, 2, 4}));
}

// 1e5 x 0.7 in fp32 is 69999.996..., some 4e-3 rad from the product in double: both must be the former.
TEST(Rope, AnglesAreProductsInFp32) {
  const float frequency = 0.7f;
  const auto table      = table_of({100003}, {frequency}, 1);
  const float angle     = 100003.0f * frequency;
  ASSERT_GT(std::abs(std::cos(angle) - std::cos(100003.0 * static_cast<double>(frequency))), 1e-5);
  EXPECT_FLOAT_EQ(table[0], std::cos(angle));
  EXPECT_FLOAT_EQ(table[1], std::sin(angle));
}

TEST(Rope, AgreesWithTheReference) {
  for (const int64_t head_dim : {2, 6, 16, 30, 32, 34, 64, 128})
    for (const int64_t tokens : {0, 1, 5})
      for (const int64_t heads : {1, 9}) {
        SCOPED_TRACE(testing::Message() << tokens << " x " << heads << " x " << head_dim);
        const Rotation rotation(tokens, heads, head_dim);
        const auto expected = rotation.rotated(rope_reference, 1);
        for_each_simd_target([&] {
          const auto got = rotation.rotated(rope_cpu, 3);
          // Two products of at most 2.5 each, rounded at most three times.
          for (size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], expected[i], 5 * 2 * 6e-8) << "at " << i;
        });
      }
}

TEST(Rope, HeadsOfAWiderRow) {
  for_each_simd_target([&] {
    const Rotation rotation(3, 2, 8);
    ThreadPool pool(1);
    std::vector<float> rows(3 * 20, 7);  // a row: 2 heads, then 4 numbers that are not the op's
    for (size_t t = 0; t < 3; ++t) std::copy_n(rotation.x.begin() + t * 16, 16, rows.begin() + t * 20);
    rope_cpu({rows.data(), {3, 2, 8}, {20, 8, 1}}, {rotation.table.data(), {3, 8}}, {.threads = &pool});
    const auto expected = rotation.rotated(rope_cpu, 1);
    for (size_t t = 0; t < 3; ++t) {
      EXPECT_TRUE(std::equal(rows.begin() + t * 20, rows.begin() + t * 20 + 16, expected.begin() + t * 16));
      for (size_t i = 16; i < 20; ++i) EXPECT_EQ(rows[t * 20 + i], 7);
    }
  });
}

TEST(Rope, ShapesThatDoNotFitAreABrokenContract) {
  ThreadPool pool(1);
  std::vector<float> numbers(12);
  for (const auto op : {rope_reference, rope_cpu}) {
    EXPECT_THROW(op({numbers.data(), {1, 2, 3}}, {numbers.data(), {1, 3}}, {.threads = &pool}),
                 ContractError);
    EXPECT_THROW(op({numbers.data(), {1, 2, 4}}, {numbers.data(), {2, 4}}, {.threads = &pool}),
                 ContractError);
  }
}

}  // namespace
}  // namespace fathom::kernels
