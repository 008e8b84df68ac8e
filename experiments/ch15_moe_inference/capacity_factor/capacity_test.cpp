// Properties of routing with a capacity, and small cases worked by hand. The experiment compares whole
// choices with another implementation.
#include "experiments/ch15_moe_inference/capacity_factor/capacity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"

namespace fathom::lab::capacity_factor {
namespace {

struct Routed {
  std::vector<int32_t> chosen;
  std::vector<float> gates;
};

Routed routed(const std::vector<float>& logits, int64_t experts, int64_t top_k, Overflow overflow,
              int64_t capacity) {
  const auto tokens = static_cast<int64_t>(logits.size()) / experts;
  Routed to{std::vector<int32_t>(static_cast<size_t>(tokens * top_k), -7),
            std::vector<float>(static_cast<size_t>(tokens * top_k), NAN)};
  route(View<const float, 2>(logits.data(), {tokens, experts}), overflow, capacity,
        View<int32_t, 2>(to.chosen.data(), {tokens, top_k}),
        View<float, 2>(to.gates.data(), {tokens, top_k}));
  return to;
}

using Experts = std::vector<int32_t>;

TEST(Capacity, IsTheFactorTimesTheMeanRoundedUp) {
  EXPECT_EQ(capacity_of(1.25, 512, 2, 16), 80);
  EXPECT_EQ(capacity_of(1.0, 13, 1, 16), 1);
  EXPECT_EQ(capacity_of(1.0, 17, 1, 16), 2);
  EXPECT_EQ(capacity_of(2.0, 0, 4, 16), 0);
  EXPECT_THROW(capacity_of(0, 1, 1, 16), ContractError);
}

// Three tokens want expert 2, then 0 (or 1).
const std::vector<float> kLogits = {1, 0, 2, /**/ 1, 0, 2, /**/ 0, 1, 2};

TEST(Capacity, SmallCasesByHand) {
  EXPECT_EQ(routed(kLogits, 3, 1, Overflow::none, 0).chosen, (Experts{2, 2, 2}));
  EXPECT_EQ(routed(kLogits, 3, 1, Overflow::drop, 2).chosen, (Experts{2, 2, -1}));
  EXPECT_EQ(routed(kLogits, 3, 1, Overflow::next_choice, 1).chosen, (Experts{2, 0, 1}));
  // First choices fill up first: the second token's second choice, 0, finds it full.
  EXPECT_EQ(routed(kLogits, 3, 2, Overflow::drop, 1).chosen, (Experts{2, 0, -1, -1, -1, 1}));
  // A moved slot takes no expert that the token chose: token 2 moves to 0, whereupon token 1 must move to 1.
  EXPECT_EQ(routed(kLogits, 3, 2, Overflow::next_choice, 2).chosen, (Experts{2, 0, 2, 1, 0, 1}));
  EXPECT_EQ(routed({5, 5, 5}, 3, 2, Overflow::none, 0).chosen, (Experts{0, 1}));  // ties
}

TEST(Capacity, GatesAreASoftmaxOverTheChoicesAndShrinkWithTheMove) {
  const auto none = routed(kLogits, 3, 2, Overflow::none, 0);
  EXPECT_NEAR(none.gates[0], std::exp(2.0) / (std::exp(2.0) + std::exp(1.0)), 1e-6);
  EXPECT_NEAR(none.gates[0] + none.gates[1], 1, 1e-6);
  const auto moved = routed(kLogits, 3, 1, Overflow::next_choice, 1);
  EXPECT_NEAR(moved.gates[1], std::exp(-1.0), 1e-6);
  EXPECT_EQ(routed(kLogits, 3, 1, Overflow::drop, 1).gates[2], 0);
}

TEST(Capacity, HoldsForRandomLogits) {
  for (const int64_t tokens : {0, 1, 2, 13, 61})
    for (const int64_t top_k : {1, 2, 4})
      for (const double factor : {0.5, 1.0, 1.25, 4.0}) {
        constexpr int64_t kExperts = 7;
        std::vector<float> logits(static_cast<size_t>(tokens * kExperts));
        fill_normal(logits.data(), tokens * kExperts, static_cast<uint64_t>(tokens), 0, 2);
        for (int64_t t = 0; t < tokens; ++t) logits[static_cast<size_t>(t * kExperts + 3)] += 3;  // a hot one
        const int64_t capacity = capacity_of(factor, tokens, top_k, kExperts);
        const auto none        = routed(logits, kExperts, top_k, Overflow::none, 0);
        int64_t dropped[2]     = {};
        for (const Overflow overflow : {Overflow::drop, Overflow::next_choice}) {
          const auto capped = routed(logits, kExperts, top_k, overflow, capacity);
          std::vector<int64_t> load(kExperts, 0);
          for (int64_t t = 0; t < tokens; ++t) {
            std::set<int32_t> of_token;
            for (int64_t s = t * top_k; s < (t + 1) * top_k; ++s) {
              const int32_t e = capped.chosen[static_cast<size_t>(s)];
              EXPECT_LE(capped.gates[static_cast<size_t>(s)], none.gates[static_cast<size_t>(s)]);
              EXPECT_EQ(e < 0, capped.gates[static_cast<size_t>(s)] == 0);
              dropped[overflow == Overflow::next_choice] += e < 0;
              if (e < 0) continue;
              EXPECT_TRUE(of_token.insert(e).second);
              ++load[static_cast<size_t>(e)];
              if (overflow == Overflow::drop) {
                EXPECT_EQ(e, none.chosen[static_cast<size_t>(s)]);
              }
            }
          }
          for (const int64_t l : load) EXPECT_LE(l, capacity);
        }
        EXPECT_LE(dropped[1], dropped[0]);
        if (top_k == 1 && factor >= 1) {
          EXPECT_EQ(dropped[1], 0);  // there is room for all
        }
      }
}

}  // namespace
}  // namespace fathom::lab::capacity_factor
