#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "core/expect.h"

namespace fathom::engine {
namespace {

using model::TokenId;
using Logits = std::vector<float>;

Logits normal_logits(int64_t vocab_size, float deviation, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  Logits logits(static_cast<size_t>(vocab_size));
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// The reference: probabilities by id, with a full sort, in double.
std::vector<double> expected_probabilities(const Logits& logits, const SamplingParameters& p,
                                           const std::vector<TokenId>& prompt = {},
                                           const std::vector<TokenId>& output = {}) {
  std::vector<double> z(logits.begin(), logits.end());
  for (const auto& [id, bias] : p.logit_bias) z[static_cast<size_t>(id)] += bias;
  std::set<TokenId> seen(prompt.begin(), prompt.end());
  seen.insert(output.begin(), output.end());
  for (const TokenId id : seen) {
    double& logit = z[static_cast<size_t>(id)];
    logit         = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
  }
  for (const TokenId id : output) z[static_cast<size_t>(id)] -= p.frequency_penalty;
  for (const TokenId id : std::set<TokenId>(output.begin(), output.end()))
    z[static_cast<size_t>(id)] -= p.presence_penalty;

  std::vector<size_t> order(z.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return z[a] > z[b]; });
  std::vector<double> weights;
  for (const size_t id : order) weights.push_back(std::exp((z[id] - z[order[0]]) / p.temperature));
  if (p.top_k > 0) weights.resize(std::min(weights.size(), static_cast<size_t>(p.top_k)));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double together    = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    together += weights[i];
    if (p.top_p < 1 && together >= p.top_p * total) weights.resize(i + 1);
  }
  while (weights.back() < p.min_p) weights.pop_back();
  const double left = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> probabilities(z.size());
  for (size_t i = 0; i < weights.size(); ++i) probabilities[order[i]] = weights[i] / left;
  return probabilities;
}

TokenId choose(Sampler& sampler, const Logits& logits, const SamplingParameters& parameters,
               const std::vector<TokenId>& prompt = {}, const std::vector<TokenId>& output = {}) {
  EXPECT_TRUE(check(parameters, static_cast<int64_t>(logits.size())));
  return sampler.sample(logits, parameters, prompt, output).value().id;
}

// Chi-square of 20000 draws against the exact probabilities; cells with under 5 expected draws are merged.
// Seeds are fixed, so the test is deterministic. Fair draws would fail it once in 10^4.
void expect_distribution(const Logits& logits, SamplingParameters p, const std::vector<TokenId>& prompt = {},
                         const std::vector<TokenId>& output = {}) {
  constexpr int kDraws     = 20000;
  const auto probabilities = expected_probabilities(logits, p, prompt, output);
  Sampler sampler(static_cast<int64_t>(logits.size()));
  std::vector<int> counts(logits.size());
  for (int draw = 0; draw < kDraws; ++draw) {
    p.seed = static_cast<uint64_t>(draw) << 20;
    ++counts[static_cast<size_t>(choose(sampler, logits, p, prompt, output))];
  }
  double chi_square = 0, rare_expected = 0, rare = 0;
  int cells      = 0;
  const auto add = [&](double count, double expected) {
    chi_square += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (size_t id = 0; id < counts.size(); ++id) {
    const double expected = probabilities[id] * kDraws;
    ASSERT_TRUE(expected > 0 || counts[id] == 0) << "token " << id << " was filtered out";
    if (expected >= 5) {
      add(counts[id], expected);
    } else {
      rare += counts[id];
      rare_expected += expected;
    }
  }
  if (rare_expected >= 5) add(rare, rare_expected);
  if (cells == 1) return;
  const double df = cells - 1, z = 3.72;  // Wilson and Hilferty's approximation
  EXPECT_LT(chi_square, df * std::pow(1 - 2 / (9 * df) + z * std::sqrt(2 / (9 * df)), 3))
      << cells << " cells";
}

TEST(Sampler, DrawsFromTheModelsDistribution) {
  for (const double temperature : {0.3, 1.0, 2.5}) {
    SCOPED_TRACE(temperature);
    expect_distribution(normal_logits(50, 2), {.temperature = temperature});
    expect_distribution(normal_logits(1000, 3), {.temperature = temperature});
  }
  expect_distribution({1, 1}, {});
}

TEST(Sampler, TopK) {
  for (const int64_t k : {1, 2, 7, 49, 50, 1000}) {
    SCOPED_TRACE(k);
    expect_distribution(normal_logits(50, 1), {.top_k = k});
  }
  // Ties at the edge go to the lower ids.
  Logits equal(300, 1.5f);
  equal[200] = 2;
  expect_distribution(equal, {.top_k = 4});
}

TEST(Sampler, TopP) {
  for (const double p : {1e-9, 0.1, 0.5, 0.9, 0.999}) {
    SCOPED_TRACE(p);
    expect_distribution(normal_logits(50, 1), {.top_p = p});
    expect_distribution(normal_logits(700, 3), {.top_p = p});
  }
  expect_distribution(Logits(64, 0.0f), {.top_p = 0.5});  // exactly half of the equal tokens, the lower ids
}

TEST(Sampler, MinP) {
  for (const double p : {0.01, 0.3, 1.0}) {
    SCOPED_TRACE(p);
    expect_distribution(normal_logits(50, 1), {.min_p = p});
  }
}

// Filters work on the output of the one before: 0.7 of the five best is less than 0.7 of all.
TEST(Sampler, AllFiltersInOrder) {
  const Logits logits = normal_logits(60, 1);
  expect_distribution(logits, {.temperature = 0.8, .top_k = 5, .top_p = 0.7});
  expect_distribution(logits, {.temperature = 2, .top_k = 20, .top_p = 0.9, .min_p = 0.4});
  expect_distribution(logits, {.top_p = 0.8, .min_p = 0.2});
}

TEST(Sampler, PenaltiesAndBias) {
  const Logits logits = {0.5f, -0.5f, 1, 0, -1, 0.25f};
  const std::vector<TokenId> prompt{0, 1, 1, 4}, output{2, 1, 2, 2, 3};
  expect_distribution(logits, {.repetition_penalty = 2}, prompt, output);
  expect_distribution(logits, {.presence_penalty = 0.75}, prompt, output);
  expect_distribution(logits, {.frequency_penalty = 0.5}, prompt, output);
  expect_distribution(logits, {.logit_bias = {{5, 1.0f}, {0, -INFINITY}}}, prompt, output);
  expect_distribution(logits,
                      {.temperature        = 0.7,
                       .top_k              = 4,
                       .repetition_penalty = 1.3,
                       .presence_penalty   = -0.5,
                       .frequency_penalty  = 0.2,
                       .logit_bias         = {{4, 2.0f}}},
                      prompt, output);
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  Sampler sampler(5);
  EXPECT_EQ(choose(sampler, {1, 3, 2, 3, 3}, {.temperature = 0}), 1);
  EXPECT_EQ(choose(sampler, {-0.0f, 0.0f, -1, -1, -1}, {.temperature = 0}), 0);
  EXPECT_EQ(choose(sampler, {-INFINITY, -5, -INFINITY, -5, -6}, {.temperature = 0, .top_k = 3}), 1);
  // After penalties and bias.
  EXPECT_EQ(choose(sampler, {1, 3, 2, 3, 3}, {.temperature = 0, .frequency_penalty = 1}, {}, {1, 3}), 4);
  EXPECT_EQ(choose(sampler, {1, 3, 2, 3, 3}, {.temperature = 0, .logit_bias = {{0, 2.5f}}}), 0);
}

// The token depends on seed, position and logits, not on the sampler object or its earlier use.
TEST(Sampler, GivesTheSameTokenFromAnySampler) {
  const Logits logits = normal_logits(500, 2);
  const std::vector<TokenId> tokens(64, 3);
  const auto upto = [&](int64_t n) { return std::vector<TokenId>(tokens.begin(), tokens.begin() + n); };
  Sampler used(500);
  std::set<TokenId> choices;
  for (int64_t n = 0; n < 64; ++n) {
    Sampler fresh(500);
    const SamplingParameters p{.top_p = 0.95, .presence_penalty = 0.1, .seed = 7};
    const TokenId choice = choose(fresh, logits, p, upto(n / 2), upto(n - n / 2));
    choose(used, normal_logits(500, 1, static_cast<uint32_t>(n)), {.top_k = 9, .logprobs = 3}, upto(n),
           upto(5));
    EXPECT_EQ(choose(used, logits, p, upto(n / 2), upto(n - n / 2)), choice);
    choices.insert(choice);
  }
  EXPECT_GT(choices.size(), 20u);  // positions differ
  Sampler sampler(500);
  std::set<TokenId> of_seeds;
  for (uint64_t seed = 0; seed < 64; ++seed) of_seeds.insert(choose(sampler, logits, {.seed = seed << 32}));
  EXPECT_GT(of_seeds.size(), 20u);
}

TEST(Sampler, LogprobsAreThoseOfTheRawLogits) {
  const Logits logits = {2, -1, 2, 0, -INFINITY};
  double total        = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  Sampler sampler(5);
  const auto sampled = sampler
                           .sample(logits, {.temperature = 0, .logit_bias = {{3, 9.0f}}, .logprobs = 3},
                                   std::vector<TokenId>{0}, std::vector<TokenId>{})
                           .value();
  EXPECT_EQ(sampled.id, 3);
  EXPECT_NEAR(sampled.logprob.value(), 0 - std::log(total), 1e-6);
  ASSERT_EQ(sampled.top.size(), 3u);
  const std::vector<TokenId> ids{0, 2, 3};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sampled.top[i].id, ids[i]);
    EXPECT_NEAR(sampled.top[i].logprob, logits[static_cast<size_t>(ids[i])] - std::log(total), 1e-6);
  }
  const auto without = sampler.sample(logits, {.temperature = 0}, {}, {}).value();
  EXPECT_FALSE(without.logprob);
  EXPECT_TRUE(without.top.empty());
  EXPECT_TRUE(sampler.sample(logits, {.logprobs = 0}, {}, {}).value().logprob);
}

TEST(Sampler, OneToken) {
  Sampler sampler(1);
  for (const double temperature : {0.0, 1.0, 1e-300, 1e300})
    EXPECT_EQ(choose(sampler, {-7}, {.temperature = temperature, .top_k = 1, .top_p = 0.5, .min_p = 0.5}), 0);
  const auto sampled = sampler.sample(Logits{-7}, {.logprobs = 1}, {}, {}).value();
  EXPECT_NEAR(*sampled.logprob, 0, 1e-6);
}

TEST(Sampler, ATinyTemperatureIsGreedy) {
  Sampler sampler(100);
  const Logits logits = normal_logits(100, 1);
  const TokenId largest =
      static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (uint64_t seed = 0; seed < 50; ++seed)
    for (const double temperature : {1e-9, 1e-320})
      EXPECT_EQ(choose(sampler, logits, {.temperature = temperature, .seed = seed}), largest);
}

TEST(Sampler, TheVocabularyOfGptOss) {
  const Logits logits = normal_logits(201088, 2);
  Sampler sampler(201088);
  for (SamplingParameters p : {SamplingParameters{.top_k = 50},
                               {.top_p = 0.9},
                               {.min_p = 0.1},
                               {.top_k = 200000, .top_p = 0.3, .min_p = 0.01},
                               {.top_k = 150000}}) {
    const auto probabilities = expected_probabilities(logits, p);
    for (p.seed = 0; p.seed < 10; ++p.seed)
      EXPECT_GT(probabilities[static_cast<size_t>(choose(sampler, logits, p))], 0);
  }
}

TEST(Sampler, LogitsWithoutADistributionAreAnError) {
  Sampler sampler(3);
  const auto message_of = [&](const Logits& logits, const SamplingParameters& p = {}) {
    const auto sampled = sampler.sample(logits, p, {}, {});
    return sampled ? "" : sampled.error().message;
  };
  EXPECT_NE(message_of({0, NAN, 1}).find("token 1 is nan"), std::string::npos);
  EXPECT_NE(message_of({5, 1, NAN}).find("token 2 is nan"), std::string::npos);
  EXPECT_NE(message_of({5, INFINITY, 0}).find("token 1 is inf"), std::string::npos);
  EXPECT_NE(message_of({-INFINITY, -INFINITY, -INFINITY}).find("-infinity"), std::string::npos);
  EXPECT_NE(
      message_of({1, 2, 3}, {.logit_bias = {{0, -INFINITY}, {1, -INFINITY}, {2, -INFINITY}}}).find("bias"),
      std::string::npos);
  EXPECT_EQ(message_of({-INFINITY, 0, -INFINITY}), "");
  EXPECT_THROW((void)sampler.sample(Logits{1, 2}, {}, {}, {}), ContractError);
}

TEST(Sampler, InvalidParametersAreNamed) {
  const auto message_of = [](const SamplingParameters& p) {
    const Status status = check(p, 10);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(message_of({}), "");
  EXPECT_NE(message_of({.temperature = -1}).find("temperature is -1"), std::string::npos);
  EXPECT_NE(message_of({.temperature = NAN}).find("temperature"), std::string::npos);
  EXPECT_NE(message_of({.top_k = -1}).find("top_k"), std::string::npos);
  EXPECT_NE(message_of({.top_p = 0}).find("top_p"), std::string::npos);
  EXPECT_NE(message_of({.top_p = 1.5}).find("top_p"), std::string::npos);
  EXPECT_NE(message_of({.min_p = -0.1}).find("min_p"), std::string::npos);
  EXPECT_NE(message_of({.repetition_penalty = 0}).find("repetition_penalty"), std::string::npos);
  EXPECT_NE(message_of({.presence_penalty = INFINITY}).find("presence_penalty"), std::string::npos);
  EXPECT_NE(message_of({.frequency_penalty = NAN}).find("frequency_penalty"), std::string::npos);
  EXPECT_NE(message_of({.logit_bias = {{10, 1.0f}}}).find("token 10"), std::string::npos);
  EXPECT_NE(message_of({.logit_bias = {{1, NAN}}}).find("token 1"), std::string::npos);
  EXPECT_NE(message_of({.logprobs = 11}).find("logprobs"), std::string::npos);
}

}  // namespace
}  // namespace fathom::engine
