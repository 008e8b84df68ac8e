#include "engine/expert_balancer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "core/expect.h"

namespace fathom::engine {
namespace {

// A router whose tokens a test chooses, and a rank load that follows the placements: an expert's tokens go to
// its replicas in turn.
struct CountedRouter {
  CountedRouter(int64_t layers, int64_t experts, int64_t ranks)
      : layers(layers),
        experts(experts),
        ranks(ranks),
        expert_load(static_cast<size_t>(layers * experts), 0),
        rank_load(static_cast<size_t>(layers * ranks), 0) {}

  // A step with these tokens of each expert, in every layer.
  bool step(ExpertBalancer& balancer, const std::vector<int64_t>& tokens) {
    for (int64_t l = 0; l < layers; ++l) {
      const auto holders =
          ranks_of_experts(balancer.placements()[static_cast<size_t>(l)], static_cast<int>(experts));
      for (int64_t e = 0; e < experts; ++e) {
        expert_load[static_cast<size_t>(l * experts + e)] += tokens[static_cast<size_t>(e)];
        const auto& of = holders[static_cast<size_t>(e)];
        for (int64_t t = 0; t < tokens[static_cast<size_t>(e)]; ++t)
          ++rank_load[static_cast<size_t>(l * ranks + of[static_cast<size_t>(t) % of.size()])];
      }
    }
    return balancer.after_step({expert_load.data(), {layers, experts}}, {rank_load.data(), {layers, ranks}});
  }

  int64_t layers, experts, ranks;
  std::vector<int64_t> expert_load, rank_load;
};

EngineConfig::Eplb eplb(int64_t window, int64_t interval, int64_t redundant = 0) {
  return {
      .enabled = true, .window_size = window, .step_interval = interval, .num_redundant_experts = redundant};
}

TEST(ExpertBalancer, BeginsWithExpertsInOrder) {
  const auto begins = [](int64_t experts, int64_t ranks, int64_t redundant) {
    return ExpertBalancer(1, experts, ranks, eplb(1, 1, redundant)).placements()[0];
  };
  EXPECT_EQ(begins(4, 2, 0), (ExpertPlacement{{0, 1}, {2, 3}}));
  EXPECT_EQ(begins(4, 2, 2), (ExpertPlacement{{0, 1, 2}, {3, 0, 1}}));
  EXPECT_EQ(begins(4, 2, 4), (ExpertPlacement{{0, 1, 2, 3}, {0, 1, 2, 3}}));
  // Sizes that divide nothing: each expert somewhere, no rank with two replicas of one.
  for (const auto& [experts, ranks, redundant] : {std::tuple{7, 3, 0}, {7, 3, 5}, {13, 5, 51}, {5, 2, 5}}) {
    const auto placement = begins(experts, ranks, redundant);
    size_t replicas      = 0;
    for (auto of_rank : placement) {
      std::sort(of_rank.begin(), of_rank.end());
      EXPECT_EQ(std::unique(of_rank.begin(), of_rank.end()), of_rank.end());
      replicas += of_rank.size();
    }
    EXPECT_EQ(replicas, static_cast<size_t>(experts + redundant));
    for (const auto& holders : ranks_of_experts(placement, experts)) EXPECT_FALSE(holders.empty());
  }
}

TEST(ExpertBalancer, MovesHotExpertsApartWhenAnIntervalIsOver) {
  CountedRouter router(3, 4, 2);
  ExpertBalancer balancer(3, 4, 2, eplb(10, 5));
  const ExpertPlacement before = balancer.placements()[0];
  for (int step = 1; step < 5; ++step) {
    EXPECT_FALSE(router.step(balancer, {100, 100, 1, 1}));
    EXPECT_EQ(balancer.placements()[2], before);
  }
  EXPECT_TRUE(router.step(balancer, {100, 100, 1, 1}));
  for (const ExpertPlacement& placement : balancer.placements())
    EXPECT_EQ(rank_imbalance(placement, std::vector<int64_t>{100, 100, 1, 1}), 1);
  EXPECT_EQ(balancer.stats().plans_taken, 3);
  EXPECT_EQ(balancer.stats().plans_refused, 0);
  EXPECT_EQ(balancer.stats().experts_moved, 3 * 2);  // one to each rank
  EXPECT_EQ(balancer.stats().mean_rank_tokens, 5 * 3 * 101);
  EXPECT_EQ(balancer.stats().max_rank_tokens, 5 * 3 * 200);
  EXPECT_EQ(balancer.stats().balancedness, 101.0 / 200);
  // The same load again: nothing is better than what is there.
  for (int step = 0; step < 5; ++step) EXPECT_FALSE(router.step(balancer, {100, 100, 1, 1}));
  EXPECT_EQ(balancer.stats().plans_refused, 3);
  EXPECT_EQ(balancer.stats().balancedness, 1);
}

// What a move costs is 16 tokens of the rank that gets most experts, and the planner asks for 1.25 times
// that.
TEST(ExpertBalancer, RefusesAMoveThatDoesNotPay) {
  const auto moves = [](int64_t hot, int64_t window, int64_t interval) {
    CountedRouter router(1, 4, 2);
    ExpertBalancer balancer(1, 4, 2, eplb(window, interval));
    bool moved = false;
    for (int64_t step = 0; step < interval; ++step) moved |= router.step(balancer, {hot, hot, 0, 0});
    return moved;
  };
  EXPECT_FALSE(moves(0, 1, 1));
  EXPECT_FALSE(moves(20, 1, 1));  // it gains 20 tokens
  EXPECT_TRUE(moves(21, 1, 1));
  EXPECT_FALSE(moves(2, 10, 10));
  EXPECT_TRUE(moves(3, 10, 10));
  EXPECT_FALSE(moves(2, 5, 10));  // 10 tokens in the window's 5 steps, 20 in the interval
  EXPECT_TRUE(moves(3, 5, 10));
}

TEST(ExpertBalancer, ReplicasTakeWhatOneRankCannot) {
  CountedRouter router(1, 4, 2);
  ExpertBalancer balancer(1, 4, 2, eplb(4, 4, 1));
  for (int step = 0; step < 4; ++step) router.step(balancer, {10, 10, 10, 90});
  const auto holders = ranks_of_experts(balancer.placements()[0], 4);
  EXPECT_EQ(holders[3], (std::vector<int32_t>{0, 1}));
  EXPECT_LT(rank_imbalance(balancer.placements()[0], std::vector<int64_t>{10, 10, 10, 90}), 1.1);
}

// Against a list of all steps, for windows shorter and longer than an interval, and multiples of it: the
// placements are those of a planner that sees the window's steps.
TEST(ExpertBalancer, SeesTheStepsOfTheWindowAlone) {
  std::mt19937 random(11);
  for (const auto& [window, interval] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 7}, {7, 7}, {14, 7}, {13, 5}, {5, 13}, {3, 1}, {100, 7}}) {
    SCOPED_TRACE(testing::Message() << "window " << window << ", interval " << interval);
    constexpr int64_t kExperts = 6, kRanks = 3;
    CountedRouter router(1, kExperts, kRanks);
    ExpertBalancer balancer(1, kExperts, kRanks, eplb(window, interval, 2));
    ExpertPlacement expected = balancer.placements()[0];
    std::vector<std::vector<int64_t>> steps;
    int changes = 0;
    for (int step = 1; step <= 60; ++step) {
      std::vector<int64_t> tokens;
      const auto hot = static_cast<size_t>(step / 9) % kExperts;  // changes while it runs
      for (size_t e = 0; e < kExperts; ++e)
        tokens.push_back(static_cast<int64_t>(random() % 30) + (e == hot ? 300 : 0));
      steps.push_back(tokens);
      const bool changed = router.step(balancer, tokens);
      if (step % interval == 0) {
        std::vector<int64_t> seen(kExperts, 0);
        const int64_t count = std::min<int64_t>(window, step);
        for (auto s = steps.end() - count; s < steps.end(); ++s)
          for (size_t e = 0; e < kExperts; ++e) seen[e] += (*s)[e];
        ExpertPlanner planner(kExperts, expected,
                              {.shape       = {.ranks = kRanks, .replicas = kExperts + 2},
                               .smoothing   = 0,
                               .ns_of_token = static_cast<double>(interval) / static_cast<double>(count),
                               .horizon_observations = 1,
                               .expert_bytes         = 16,
                               .copied_bytes_of_a_ns = 1});
        planner.observe(seen);
        planner.replan();
        changes += planner.placement() != expected;
        expected = planner.placement();
      } else {
        EXPECT_FALSE(changed);
      }
      ASSERT_EQ(balancer.placements()[0], expected) << "after step " << step;
    }
    EXPECT_GT(changes, 1);
  }
}

TEST(ExpertBalancer, LogsTheStepsThatAreWanted) {
  EngineConfig::Eplb config = eplb(1, 100);
  std::vector<ExpertBalancer::StepBalance> logged;
  const auto run = [&] {
    logged.clear();
    CountedRouter router(2, 2, 2);
    ExpertBalancer balancer(2, 2, 2, config, [&](const auto& step) { logged.push_back(step); });
    for (int64_t step = 1; step <= 7; ++step) router.step(balancer, {step, 0});
  };
  run();
  EXPECT_TRUE(logged.empty());
  config.log_balancedness          = true;
  config.log_balancedness_interval = 3;
  run();
  ASSERT_EQ(logged.size(), 2u);
  EXPECT_EQ(logged[1].step, 6);
  EXPECT_EQ(logged[1].mean_tokens, 6);  // of two layers
  EXPECT_EQ(logged[1].max_tokens, 12);
  EXPECT_EQ(logged[1].balancedness, 0.5);
}

TEST(ExpertBalancer, ContractsAreChecked) {
  EXPECT_THROW(ExpertBalancer(1, 4, 2, eplb(0, 1)), ContractError);
  EXPECT_THROW(ExpertBalancer(1, 4, 2, eplb(1, 0)), ContractError);
  EXPECT_THROW(ExpertBalancer(1, 4, 2, eplb(1, 1, 5)), ContractError);
  ExpertBalancer balancer(1, 4, 2, eplb(1, 1));
  EXPECT_THROW(balancer.after_step({}, {}), ContractError);
}

}  // namespace
}  // namespace fathom::engine
