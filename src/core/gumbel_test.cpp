#include "core/gumbel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/rng.h"

namespace fathom {
namespace {

// The definition.
int64_t argmax(const std::vector<float>& logits, double temperature, uint64_t seed, int64_t position) {
  int64_t best    = -1;
  double best_sum = 0;
  for (size_t v = 0; v < logits.size(); ++v) {
    if (logits[v] == -INFINITY) continue;
    const double sum =
        static_cast<double>(logits[v]) / temperature + gumbel(seed, position, static_cast<int64_t>(v));
    if (best < 0 || sum > best_sum) best = static_cast<int64_t>(v), best_sum = sum;
  }
  return best;
}

TEST(Gumbel, NumbersAreThoseOfTheirWords) {
  // Word 2 of Philox(counter 5, use 1 + 7, seed).
  const uint64_t seed = 0x123456789abcdef0;
  const auto words    = philox({5, 0, 8, 0}, {0x9abcdef0, 0x12345678});
  const double u      = (static_cast<double>(words[2]) + 0.5) / 4294967296.0;
  EXPECT_NEAR(gumbel(seed, 5, 30), -std::log(-std::log(u)), 1e-9);
}

TEST(Gumbel, NumbersHaveTheLaw) {
  // Mean 0.57722 and variance pi^2 / 6, each within five standard errors.
  constexpr int kCount = 100000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double g = gumbel(9, i / 1000, i % 1000);
    ASSERT_LT(g, static_cast<double>(kMostGumbel));
    sum += g, squares += g * g;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.5772156649, 5 * 1.2825 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount - mean * mean, 1.6449, 5 * 3.0 / std::sqrt(kCount));
}

TEST(Gumbel, TheArgmaxIsTheDefinitions) {
  for (const int64_t n : {1, 2, 3, 4, 5, 63, 64, 65, 100, 1000, 201088})
    for (const double deviation : {0.01, 1.0, 4.0, 60.0})
      for (const double temperature : {0.1, 1.0, 3.0}) {
        std::vector<float> logits(static_cast<size_t>(n));
        fill_normal(logits.data(), n, static_cast<uint64_t>(n), 0, deviation);
        for (size_t v = 1; v < logits.size(); v += 7) logits[v] = -INFINITY;
        for (int64_t draw = 0; draw < (n > 1000 ? 2 : 20); ++draw) {
          const uint64_t seed = static_cast<uint64_t>(draw) * 0x100000001;
          ASSERT_EQ(gumbel_argmax(logits, temperature, seed, 3 * draw),
                    argmax(logits, temperature, seed, 3 * draw))
              << n << " logits, deviation " << deviation << ", temperature " << temperature;
        }
      }
}

TEST(Gumbel, FindsAllThatReachASum) {
  for (const int64_t n : {1, 63, 65, 5000}) {
    std::vector<float> logits(static_cast<size_t>(n));
    fill_normal(logits.data(), n, static_cast<uint64_t>(n), 0, 3);
    for (size_t v = 3; v < logits.size(); v += 11) logits[v] = -INFINITY;
    for (const double least : {-100.0, 0.0, 4.0, 9.0, 1000.0}) {
      std::vector<int64_t> expected, found{-7};
      for (int64_t v = 0; v < n; ++v)
        if (static_cast<double>(logits[static_cast<size_t>(v)]) / 0.7 + gumbel(8, 3, v) >= least)
          expected.push_back(v);
      gumbel_at_least(logits, 0.7, 8, 3, least, found);
      expected.insert(expected.begin(), -7);
      EXPECT_EQ(found, expected) << n << " logits, least " << least;
    }
  }
}

TEST(Gumbel, PartsOfARowGiveTheBestOfTheRow) {
  std::vector<float> logits(1000);
  fill_normal(logits.data(), 1000, 2, 0, 2);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    GumbelBest best;
    std::vector<int64_t> parts, whole;
    for (int64_t first = 0; first < 1000; first += 192) {
      const auto part = std::span<const float>(logits).subspan(
          static_cast<size_t>(first), static_cast<size_t>(std::min<int64_t>(192, 1000 - first)));
      const GumbelBest of_part = gumbel_best(part, 0.8, seed, 5, first);
      if (best.id < 0 || of_part.sum > best.sum) best = of_part;
      gumbel_at_least(part, 0.8, seed, 5, 4, parts, first);
    }
    gumbel_at_least(logits, 0.8, seed, 5, 4, whole);
    EXPECT_EQ(best.id, gumbel_argmax(logits, 0.8, seed, 5));
    EXPECT_NEAR(best.sum, logits[static_cast<size_t>(best.id)] / 0.8 + gumbel(seed, 5, best.id), 1e-12);
    EXPECT_EQ(parts, whole);
  }
}

TEST(Gumbel, ATinyTemperatureTakesTheLargest) {
  std::vector<float> logits(300);
  fill_normal(logits.data(), 300, 4, 5, 1);
  logits[200] = 50;
  for (const double temperature : {1e-9, 1e-320}) EXPECT_EQ(gumbel_argmax(logits, temperature, 1, 2), 200);
}

}  // namespace
}  // namespace fathom
