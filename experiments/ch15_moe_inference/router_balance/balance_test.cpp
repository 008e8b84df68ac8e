// The gradient against finite differences of the loss, small cases by hand, and what the steps converge to.
#include "experiments/ch15_moe_inference/router_balance/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/rng.h"

namespace fathom::lab::router_balance {
namespace {

using Numbers = std::vector<float>;

std::vector<float> random_logits(int64_t tokens, int64_t experts, uint64_t seed) {
  std::vector<float> logits(static_cast<size_t>(tokens * experts));
  fill_normal(logits.data(), tokens * experts, seed, 0, 1.5);
  return logits;
}

View<const float, 2> view(const std::vector<float>& logits, int64_t experts) {
  return {logits.data(), {static_cast<int64_t>(logits.size()) / experts, experts}};
}

TEST(SlotShares, CountChoices) {
  const Numbers logits = {3, 2, 1, /**/ 1, 2, 3};
  EXPECT_EQ(slot_shares(view(logits, 3), Numbers{0, 0, 0}, 1), (std::vector<double>{0.5, 0, 0.5}));
  EXPECT_EQ(slot_shares(view(logits, 3), Numbers{0, 4, 0}, 1), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(slot_shares(view(logits, 3), Numbers{0, 0, 0}, 2), (std::vector<double>{0.25, 0.5, 0.25}));
  EXPECT_EQ(slot_shares(View<const float, 2>(nullptr, {0, 3}), Numbers{0, 0, 0}, 1),
            (std::vector<double>{0, 0, 0}));
}

TEST(AuxiliaryLoss, IsOneWhereAllIsEvenAndTheNumberOfExpertsWhereOneTakesAll) {
  const Numbers even(5 * 4, 0.5f);
  EXPECT_NEAR(load_balancing_loss(view(even, 4), Numbers(4), std::vector<double>(4, 0.25)), 1, 1e-12);
  const Numbers one = {50, 0, 0, 0};
  EXPECT_NEAR(load_balancing_loss(view(one, 4), Numbers(4), std::vector<double>{1, 0, 0, 0}), 4, 1e-9);
  EXPECT_EQ(load_balancing_loss(View<const float, 2>(nullptr, {0, 4}), Numbers(4), std::vector<double>(4)),
            0);
}

TEST(AuxiliaryLoss, ItsGradientIsThatOfFiniteDifferences) {
  for (const int64_t experts : {1, 2, 7, 16})
    for (const int64_t tokens : {1, 13, 61}) {
      const Numbers logits = random_logits(tokens, experts, static_cast<uint64_t>(100 * experts + tokens));
      Numbers bias(static_cast<size_t>(experts));
      fill_normal(bias.data(), experts, 3, 0, 1);
      const auto shares   = slot_shares(view(logits, experts), bias, 1);
      const auto gradient = load_balancing_gradient(view(logits, experts), bias, shares);
      for (size_t e = 0; e < bias.size(); ++e) {
        constexpr float kStep = 1.0f / 256;
        Numbers above = bias, below = bias;
        above[e] += kStep;
        below[e] -= kStep;
        const double difference = load_balancing_loss(view(logits, experts), above, shares) -
                                  load_balancing_loss(view(logits, experts), below, shares);
        const double width = static_cast<double>(above[e]) - static_cast<double>(below[e]);
        EXPECT_NEAR(gradient[e], difference / width, 1e-4) << experts << " experts, " << tokens << " tokens";
      }
    }
}

// Experts whose logits lie half a unit apart, the first one the hottest.
void skewed(float* logits, int64_t elements, uint64_t step, int64_t experts) {
  fill_normal(logits, elements, 1000 + step, 0, 1.5);
  for (int64_t i = 0; i < elements; ++i) logits[i] -= 0.5f * static_cast<float>(i % experts);
}

TEST(Biases, EvenOutTheLoadOfTokensThatTheyHaveNotSeen) {
  for (const int64_t experts : {2, 7, 16})
    for (const int64_t top_k : {1, 2}) {
      if (top_k == experts) continue;  // no choice
      const StepLogits logits = [&](float* out, int64_t n, uint64_t step) { skewed(out, n, step, experts); };
      const Training training{.tokens = 512, .experts = experts, .top_k = top_k, .steps = 800};
      Numbers unseen(static_cast<size_t>(4096 * experts));
      skewed(unseen.data(), 4096 * experts, 99999, experts);
      const auto hottest = [&](const Numbers& bias) {
        const auto shares = slot_shares(view(unseen, experts), bias, top_k);
        EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-9);
        return *std::max_element(shares.begin(), shares.end()) * static_cast<double>(experts);
      };
      EXPECT_GT(hottest(Numbers(static_cast<size_t>(experts))), 1.15);
      EXPECT_LT(hottest(train_biases(training, logits)), 1.15) << experts << " experts, top " << top_k;
      EXPECT_LT(hottest(adapt_selection_biases(training, logits)), 1.15)
          << experts << " experts, top " << top_k;
    }
}

TEST(Biases, AreZeroBeforeTheFirstStep) {
  const StepLogits logits = [](float* out, int64_t n, uint64_t step) { skewed(out, n, step, 4); };
  const Training none{.tokens = 8, .experts = 4, .top_k = 1, .steps = 0};
  EXPECT_EQ(train_biases(none, logits), Numbers(4));
  EXPECT_EQ(adapt_selection_biases(none, logits), Numbers(4));
}

}  // namespace
}  // namespace fathom::lab::router_balance
