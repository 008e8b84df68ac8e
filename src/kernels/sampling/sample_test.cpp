#include "kernels/sampling/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/expect.h"
#include "core/gumbel.h"
#include "core/rng.h"
#include "cuda/device.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

constexpr int32_t kUntouched = INT32_MAX;

class TokenChoice : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
};

// Rules without a place get the index of their row.
std::vector<int32_t> choose(const std::vector<float>& logits, int64_t vocabulary,
                            std::vector<SamplingRow> rules, int64_t places = -1) {
  const auto R = static_cast<int64_t>(rules.size());
  if (places < 0) {
    places = R;
    for (size_t r = 0; r < rules.size(); ++r) rules[r].place = static_cast<int32_t>(r);
  }
  GuardedDeviceBuffer<float> on_logits(logits);
  GuardedDeviceBuffer<SamplingRow> on_rules(rules);
  GuardedDeviceBuffer<int32_t> sampled(places);
  sample_tokens(on_logits.view<2>({R, vocabulary}), on_rules.view<1>({R}), sampled.view<1>({places}),
                find_device({0})->stream());
  return sampled.read();
}

std::vector<float> normal_logits(int64_t count, double deviation, uint64_t seed) {
  std::vector<float> logits(static_cast<size_t>(count));
  fill_normal(logits.data(), count, seed, 0, deviation);
  return logits;
}

TEST_F(TokenChoice, GreedyIsTheFirstOfTheLargest) {
  const SamplingRow greedy{.temperature = 0};
  for (const int64_t vocabulary : {4, 100, 512, 896, 4096, 5000, 201088, 262144})
    for (const int64_t rows : {0, 1, 2, 7, 63}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << vocabulary);
      auto logits = normal_logits(rows * vocabulary, 2, 5);
      std::vector<int32_t> expected;
      for (int64_t r = 0; r < rows; ++r) {
        const auto row = logits.begin() + r * vocabulary;
        if (r % 3 == 1) {  // equal logits, some apart and some adjacent, in different warps and CTAs
          const float most = r % 2 ? 100.0f : -0.0f;
          if (r % 2 == 0)
            std::transform(row, row + vocabulary, row, [](float v) { return -std::abs(v) - 1; });
          for (const int64_t at : {vocabulary - 1, vocabulary / 2, vocabulary / 8 * (1 + r % 5),
                                   vocabulary / 8 * (1 + r % 5) + 1, vocabulary * 3 / 4})
            row[at] = at % 2 ? most : most + 0.0f;
        }
        expected.push_back(static_cast<int32_t>(std::max_element(row, row + vocabulary) - row));
      }
      EXPECT_EQ(choose(logits, vocabulary, std::vector<SamplingRow>(static_cast<size_t>(rows), greedy)),
                expected);
    }
}

TEST_F(TokenChoice, WhatIsNoDistributionIsAnError) {
  for (const int64_t vocabulary : {100, 201088})
    for (const float temperature : {0.0f, 1.0f}) {
      auto logits   = normal_logits(6 * vocabulary, 1, 6);
      const auto at = [&](int64_t r, int64_t i) -> float& {
        return logits[static_cast<size_t>(r * vocabulary + i)];
      };
      at(0, vocabulary - 1) = NAN;
      at(1, 17)             = INFINITY;
      std::fill_n(logits.begin() + 2 * vocabulary, vocabulary, -INFINITY);
      std::fill_n(logits.begin() + 3 * vocabulary, vocabulary, -INFINITY);
      at(3, 71)             = -1e30f;  // one that may be drawn
      at(4, 0)              = -NAN;
      at(5, vocabulary / 2) = 80;
      EXPECT_EQ(choose(logits, vocabulary, std::vector<SamplingRow>(6, {.temperature = temperature})),
                (std::vector<int32_t>{-1, -1, -1, 71, -1, static_cast<int32_t>(vocabulary / 2)}));
    }
}

TEST_F(TokenChoice, PlacesAndPadding) {
  const auto logits = normal_logits(5 * 896, 1, 7);
  std::vector<SamplingRow> rules(5, {.temperature = 0});
  rules[0].place = 7;
  rules[2].place = 0;
  rules[4]       = {.temperature = 1, .top_p = 0.5f, .place = 3};
  const auto got = choose(logits, 896, rules, 9);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i] == kUntouched, i != 7 && i != 0 && i != 3) << i;
}

// The definition, in double: the weights of the tokens that may be drawn. A relative `slack` widens (above 0)
// or tightens the sets of top_p and min_p.
std::vector<double> allowed_weights(const float* logits, int64_t vocabulary, const SamplingRow& rule,
                                    double slack) {
  const auto V = static_cast<size_t>(vocabulary);
  std::vector<int32_t> order(V);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  std::vector<double> weights(V);
  const double most = logits[order[0]];
  for (size_t i = 0; i < V; ++i) weights[i] = std::exp((logits[i] - most) / rule.temperature);
  size_t kept = V;
  if (rule.top_k > 0) kept = std::min(kept, static_cast<size_t>(rule.top_k));
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += weights[static_cast<size_t>(order[i])];
  if (rule.top_p < 1) {
    double sum = 0;
    size_t n   = 0;
    while (n < kept && sum < rule.top_p * total * (1 + slack))
      sum += weights[static_cast<size_t>(order[n++])];
    kept = std::max<size_t>(n, 1);
  }
  while (kept > 1 && weights[static_cast<size_t>(order[kept - 1])] < rule.min_p * (1 - slack)) --kept;
  std::vector<double> allowed(V, 0);
  for (size_t i = 0; i < kept; ++i)
    allowed[static_cast<size_t>(order[i])] = weights[static_cast<size_t>(order[i])];
  return allowed;
}

// The random number of core/rng.h, as engine/sampler.cpp uses it.
double uniform(uint64_t seed, int64_t position) {
  const auto at   = static_cast<uint64_t>(position);
  const auto bits = philox({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0},
                           {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return (static_cast<double>((uint64_t{bits[1]} << 32 | bits[0]) >> 11) + 0.5) * 0x1p-53;
}

struct Law {
  const char* name;
  SamplingRow rule;
};
const Law kLaws[] = {
    {"temperature", {.temperature = 1}},
    {"cold", {.temperature = 0.3f}},
    {"hot", {.temperature = 30}},
    {"top-k 1", {.temperature = 1, .top_k = 1}},
    {"top-k", {.temperature = 1.5f, .top_k = 40}},
    {"top-k of nearly all", {.temperature = 5, .top_k = 890}},
    {"top-p", {.temperature = 1, .top_p = 0.9f}},
    {"top-p, little", {.temperature = 1, .top_p = 1e-4f}},
    {"top-p, nearly all", {.temperature = 2, .top_p = 0.9999f}},
    {"hot top-p", {.temperature = 20, .top_p = 0.5f}},
    {"min-p", {.temperature = 1, .min_p = 0.05f}},
    {"min-p 1", {.temperature = 1, .min_p = 1}},
    {"all", {.temperature = 1.2f, .top_p = 0.95f, .min_p = 0.01f, .top_k = 100}},
    {"tiny temperature", {.temperature = 1e-39f, .top_p = 0.9f}},
    {"huge temperature", {.temperature = 1e38f, .top_p = 0.25f, .top_k = 500}},
};

// Distributions with ties and plateaus, which are hard for a search by intervals.
struct Shape {
  const char* name;
  std::vector<float> logits;
};
std::vector<Shape> shapes(int64_t vocabulary) {
  std::vector<Shape> all{{"normal", normal_logits(vocabulary, 2.5, 8)},
                         {"wide", normal_logits(vocabulary, 40, 9)},
                         {"narrow", normal_logits(vocabulary, 0.01, 10)},
                         {"equal", std::vector<float>(static_cast<size_t>(vocabulary), 1.5f)},
                         {"zero", std::vector<float>(static_cast<size_t>(vocabulary), 0.0f)},
                         {"levels", normal_logits(vocabulary, 2, 11)},
                         {"masked", normal_logits(vocabulary, 2, 12)},
                         {"peak", normal_logits(vocabulary, 1, 13)}};
  for (float& v : all[5].logits) v = std::round(2 * v) / 2;
  for (size_t i = 0; i < all[6].logits.size(); ++i)
    if (i % 3) all[6].logits[i] = i % 2 ? -INFINITY : -1e30f;
  all[7].logits[static_cast<size_t>(vocabulary) / 3] = 60;
  return all;
}

// The id must be that of the definition for the same random number. fp32 weights are off by some 2^-21: the
// id may be a neighbour's where u is that close to a border, and the sets may differ by tokens that close to
// a threshold.
TEST_F(TokenChoice, DrawsAreTheDefinitions) {
  constexpr double kOff = 1e-5;
  for (const int64_t vocabulary : {4, 896, 20000, 201088})
    for (const Shape& shape : shapes(vocabulary))
      for (const Law& law : kLaws) {
        SCOPED_TRACE(testing::Message() << shape.name << " x " << vocabulary << ", " << law.name);
        const int64_t rows = vocabulary > 20000 ? 3 : 7;
        std::vector<float> logits;
        std::vector<SamplingRow> rules(static_cast<size_t>(rows), law.rule);
        for (size_t r = 0; r < rules.size(); ++r) {
          logits.insert(logits.end(), shape.logits.begin(), shape.logits.end());
          rules[r].seed     = 77 + r * 0x100000001;
          rules[r].position = static_cast<int64_t>(r) * 3;
        }
        const auto got = choose(logits, vocabulary, rules);
        EXPECT_EQ(choose(logits, vocabulary, rules), got);

        const auto few          = allowed_weights(shape.logits.data(), vocabulary, law.rule, -kOff);
        const auto many         = allowed_weights(shape.logits.data(), vocabulary, law.rule, kOff);
        const double few_total  = std::accumulate(few.begin(), few.end(), 0.0);
        const double many_total = std::accumulate(many.begin(), many.end(), 0.0);
        for (size_t r = 0; r < got.size(); ++r) {
          ASSERT_GE(got[r], 0);
          ASSERT_LT(got[r], vocabulary);
          const auto id = static_cast<size_t>(got[r]);
          if (draws_from_all(rules[r], vocabulary)) {
            const auto sum = [&](int64_t v) {
              return static_cast<double>(shape.logits[static_cast<size_t>(v)]) / rules[r].temperature +
                     gumbel(rules[r].seed, rules[r].position, v);
            };
            double best = -std::numeric_limits<double>::infinity();
            for (int64_t v = 0; v < vocabulary; ++v) best = std::max(best, sum(v));
            ASSERT_GE(sum(got[r]), best - kOff * std::max(1.0, std::abs(best))) << "token " << id;
            continue;
          }
          ASSERT_GT(many[id], 0) << "token " << id << " may not come";
          // The running sum, for either set at the threshold.
          double least = 0, most = 0;
          for (size_t i = 0; i <= id; ++i) {
            if (i < id) least += std::min(few[i], many[i]);
            most += std::max(few[i], many[i]);
          }
          const double u = uniform(rules[r].seed, rules[r].position);
          ASSERT_LE(least, u * std::max(few_total, many_total) + kOff * many_total) << "token " << id;
          ASSERT_GE(most, u * std::min(few_total, many_total) - kOff * many_total) << "token " << id;
        }
      }
}

TEST_F(TokenChoice, FrequenciesFollowTheLaw) {
  constexpr int64_t kVocabulary = 896, kRows = 512, kCalls = 16;
  const auto shape = normal_logits(kVocabulary, 2.5, 14);
  std::vector<float> logits;
  for (int64_t r = 0; r < kRows; ++r) logits.insert(logits.end(), shape.begin(), shape.end());
  for (const Law& law : {kLaws[0], kLaws[4], kLaws[6], kLaws[10], kLaws[12]}) {
    SCOPED_TRACE(law.name);
    std::vector<double> seen(static_cast<size_t>(kVocabulary));
    for (int64_t call = 0; call < kCalls; ++call) {
      std::vector<SamplingRow> rules(static_cast<size_t>(kRows), law.rule);
      for (size_t r = 0; r < rules.size(); ++r) {
        rules[r].seed     = r / 2;
        rules[r].position = 2 * call + static_cast<int64_t>(r % 2);
      }
      for (const int32_t id : choose(logits, kVocabulary, rules)) ++seen[static_cast<size_t>(id)];
    }
    const auto weights = allowed_weights(shape.data(), kVocabulary, law.rule, 0);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0), draws = kRows * kCalls;
    double statistic = 0, rest_seen = 0, rest_expected = 0, cells = 0;
    const auto cell = [&](double count, double expected) {
      statistic += (count - expected) * (count - expected) / expected;
      ++cells;
    };
    for (size_t i = 0; i < seen.size(); ++i) {
      const double expected = weights[i] / total * draws;
      if (expected == 0) {
        ASSERT_EQ(seen[i], 0);
      }
      if (expected >= 5) {
        cell(seen[i], expected);
      } else {
        rest_seen += seen[i];
        rest_expected += expected;
      }
    }
    if (rest_expected > 0) cell(rest_seen, rest_expected);
    // Chi-squared has mean cells - 1 and twice that as variance: five standard deviations.
    EXPECT_LT(statistic, cells - 1 + 5 * std::sqrt(2 * cells));
  }
}

// Greedy and random rows in one batch give the same ids as each row alone.
TEST_F(TokenChoice, ARowsIdDependsOnNothingButTheRow) {
  constexpr int64_t kVocabulary = 201088, kRows = 20;
  const auto logits = normal_logits(kRows * kVocabulary, 2, 15);
  std::vector<SamplingRow> rules;
  for (int64_t r = 0; r < kRows; ++r) {
    rules.push_back(kLaws[static_cast<size_t>(r) % std::size(kLaws)].rule);
    if (r % 4 == 0) rules.back().temperature = 0;
    rules.back().seed = static_cast<uint64_t>(r);
  }
  const auto together = choose(logits, kVocabulary, rules);
  for (const int64_t r : {0, 1, 6, 19})
    EXPECT_EQ(choose({logits.begin() + r * kVocabulary, logits.begin() + (r + 1) * kVocabulary}, kVocabulary,
                     {rules[static_cast<size_t>(r)]})[0],
              together[static_cast<size_t>(r)]);
}

TEST_F(TokenChoice, ShapesThatDoNotFitAreABrokenContract) {
  GuardedDeviceBuffer<float> logits(16);
  GuardedDeviceBuffer<SamplingRow> rules(1);
  GuardedDeviceBuffer<int32_t> sampled(1);
  EXPECT_THROW(sample_tokens(logits.view<2>({1, 6}), rules.view<1>({1}), sampled.view<1>({1}), nullptr),
               ContractError);
  EXPECT_THROW(sample_tokens(logits.view<2>({1, kMaxVocabulary + 4}), rules.view<1>({1}),
                             sampled.view<1>({1}), nullptr),
               ContractError);
  EXPECT_THROW(sample_tokens(logits.view<2>({2, 8}), rules.view<1>({1}), sampled.view<1>({1}), nullptr),
               ContractError);
}

}  // namespace
}  // namespace fathom::kernels
