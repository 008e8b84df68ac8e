#include "book/rack_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"

namespace fathom::book {
namespace {

constexpr double kMiB = 1 << 20;

Cluster racks_of_8(int gpus) {
  return {.gpus = gpus, .domain = 8, .inside = {2, 450}, .between = {10, 50}, .sums_in_switch = false};
}
Cluster one_domain(int gpus) {
  return {.gpus = gpus, .domain = gpus, .inside = {2, 900}, .between = {10, 50}, .sums_in_switch = true};
}

// A ring step by step: what each link carries in each step, over as many rings as a domain has GPUs. Ring i
// leaves a domain by the port of GPU i.
double stepped_ring(const Cluster& c, double bytes) {
  double us = 0;
  for (int step = 0; step < 2 * (c.gpus - 1); ++step) {
    double slowest = 0;
    for (int gpu = 0; gpu < c.domain; ++gpu) {
      const double piece = bytes / c.domain / c.gpus;
      // A GPU sends on every ring: to the next GPU of its domain, or on its own ring to the next domain.
      const bool leaves = c.gpus > c.domain;
      const double nv   = piece * (c.domain - (leaves ? 1 : 0));
      slowest           = std::max(slowest, c.inside.start_us + nv / (c.inside.gb_s * 1e3));
      if (leaves) slowest = std::max(slowest, c.between.start_us + piece / (c.between.gb_s * 1e3));
    }
    us += slowest;
  }
  return us;
}

TEST(RackModel, ARingIsTheSumOfItsSteps) {
  for (const Cluster& c : {one_domain(2), one_domain(8), one_domain(72), racks_of_8(72)})
    for (const double bytes : {0.0, 8.0, kMiB, 1024 * kMiB})
      EXPECT_NEAR(all_reduce_times(c, bytes).ring, stepped_ring(c, bytes),
                  1e-9 * stepped_ring(c, bytes) + 1e-9);
}

TEST(RackModel, OneGpuHasNothingToSum) {
  const AllReduceTimes times = all_reduce_times(one_domain(1), kMiB);
  EXPECT_EQ(times.ring + times.tree + times.hierarchical + times.in_switch, 0);
}

// 8 GPUs, 1 MiB, by hand.
TEST(RackModel, TimesOfOneDomainByHand) {
  const AllReduceTimes times = all_reduce_times(one_domain(8), kMiB);
  const double mib_us        = kMiB / 900e3;
  EXPECT_NEAR(times.ring, 14 * (2 + mib_us / 8), 1e-9);
  EXPECT_NEAR(times.tree, 2 * 3 * 2 + 2 * mib_us, 1e-9);
  EXPECT_NEAR(times.hierarchical, 2 * (2 + 7 * mib_us / 8), 1e-9);
  EXPECT_NEAR(times.in_switch, 4 + mib_us, 1e-9);
  EXPECT_EQ(all_reduce_times(racks_of_8(16), kMiB).in_switch, 0);
}

// 2 domains of 8, by hand: each GPU's eighth travels as two halves between the domains.
TEST(RackModel, AHierarchyByHand) {
  const double mib = kMiB / 1e3;
  EXPECT_NEAR(all_reduce_times(racks_of_8(16), kMiB).hierarchical,
              2 * (2 + 7.0 / 8 * mib / 450) + 2 * (10 + mib / 16 / 50), 1e-9);
}

// The orders that make libraries choose by size (Thakur and others, 2005).
TEST(RackModel, SmallSumsWantFewStepsAndLargeOnesFewBytes) {
  const Cluster c = one_domain(8);
  EXPECT_LT(all_reduce_times(c, 1024).tree, all_reduce_times(c, 1024).ring);
  EXPECT_GT(all_reduce_times(c, 1e10).tree, all_reduce_times(c, 1e10).ring);
}

// Tokens drawn one by one: copies as an all-to-all makes them.
TEST(RackModel, CopiesAreThoseOfDrawnTokens) {
  struct Case {
    int ranks, domain, experts, top_k;
  };
  for (const Case& at :
       {Case{4, 8, 8, 2}, Case{8, 8, 16, 4}, Case{16, 8, 64, 8}, Case{72, 8, 288, 8}, Case{72, 72, 144, 1}}) {
    const Cluster c{
        .gpus = 72 / at.domain * at.domain, .domain = at.domain, .inside = {2, 450}, .between = {10, 50}};
    const ExpertGroup group{.experts = at.experts, .top_k = at.top_k, .ranks = at.ranks};
    const int of_rank = at.experts / at.ranks, draws = 40'000;
    double inside = 0, between = 0, once = 0, forwarded = 0;
    std::vector<double> uniform(static_cast<size_t>(at.experts));
    for (int t = 0; t < draws; ++t) {
      const int home = t % at.ranks;
      fill_uniform(uniform.data(), at.experts, 7, 0, 1, int64_t{t} * at.experts);
      std::vector<int> order(uniform.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
      std::partial_sort(order.begin(), order.begin() + at.top_k, order.end(), [&](int a, int b) {
        return uniform[static_cast<size_t>(a)] < uniform[static_cast<size_t>(b)];
      });
      std::array<bool, 72> met{};
      for (int i = 0; i < at.top_k; ++i) {
        const int rank = order[static_cast<size_t>(i)] / of_rank, domain = rank / at.domain;
        if (domain == home / at.domain) {
          inside += rank != home;
          continue;
        }
        ++between;
        once += !std::exchange(met[static_cast<size_t>(domain)], true);
        forwarded += rank % at.domain != home % at.domain;
      }
    }
    const auto near = [&](double modelled, double drawn) {
      EXPECT_NEAR(modelled, drawn / draws, 0.02 * drawn / draws + 1e-12) << at.ranks << " of " << at.domain;
    };
    const ExpertExchange each = expert_exchange(c, group, Dispatch::copy_per_expert);
    near(each.inside_copies, inside);
    near(each.between_copies, between);
    const ExpertExchange one = expert_exchange(c, group, Dispatch::copy_per_domain);
    near(one.inside_copies, inside + forwarded);
    near(one.between_copies, once);
  }
}

TEST(RackModel, WiderGroupsHoldFewerExpertsAndUseThemOftener) {
  const auto at = [](int ranks) {
    return expert_exchange(one_domain(72), {.experts = 288, .ranks = ranks, .expert_bytes = 10},
                           Dispatch::copy_per_expert);
  };
  EXPECT_EQ(at(4).memory_bytes, 720);
  EXPECT_EQ(at(72).memory_bytes, 40);
  EXPECT_EQ(at(72).rows, 18 * at(4).rows);
  EXPECT_EQ(expert_exchange(one_domain(72), {.experts = 256, .ranks = 72, .expert_bytes = 1},
                            Dispatch::copy_per_expert)
                .memory_bytes,
            4);  // 256 / 72 rounded up
  EXPECT_EQ(at(1).us, 0);
}

// The fewest crossings of all placements with equally many experts in each domain.
int64_t fewest(std::span<const int64_t> load, int experts, int domains) {
  std::vector<int> placement = place_in_turn(experts, domains);
  std::sort(placement.begin(), placement.end());
  int64_t least = crossings(load, placement, domains);
  while (std::next_permutation(placement.begin(), placement.end()))
    least = std::min(least, crossings(load, placement, domains));
  return least;
}

TEST(RackModel, LocalityIsNearTheBestOfAllPlacements) {
  double sum = 0, worst = 1;
  constexpr int kTrials = 60;
  for (int trial = 0; trial < kTrials; ++trial) {
    const int domains = trial % 2 ? 2 : 4, experts = 8;
    std::vector<double> drawn(static_cast<size_t>(experts * domains));
    fill_uniform(drawn.data(), static_cast<int64_t>(drawn.size()), static_cast<uint64_t>(trial), 0, 1000);
    const std::vector<int64_t> load(drawn.begin(), drawn.end());
    const std::vector<int> placement = place_by_locality(load, experts, domains);
    for (int d = 0; d < domains; ++d)
      EXPECT_EQ(std::count(placement.begin(), placement.end(), d), experts / domains);
    const int64_t best = fewest(load, experts, domains), ours = crossings(load, placement, domains);
    EXPECT_GE(ours, best);
    const double ratio = static_cast<double>(ours) / static_cast<double>(best);
    worst              = std::max(worst, ratio);
    sum += ratio;
  }
  EXPECT_LE(worst, 1.06);
  EXPECT_LE(sum / kTrials, 1.01);
}

// Where all domains choose alike, no placement keeps more than its share at home.
TEST(RackModel, LocalityGainsNothingFromEvenTokens) {
  const std::vector<int64_t> load(8 * 4, 5);
  EXPECT_EQ(crossings(load, place_by_locality(load, 8, 4), 4), crossings(load, place_in_turn(8, 4), 4));
  EXPECT_EQ(crossings(load, place_in_turn(8, 4), 4), 8 * 3 * 5);
}

TEST(RackModel, ContractsAreChecked) {
  EXPECT_THROW(all_reduce_times({.gpus = 12, .domain = 8}, 1), ContractError);
  EXPECT_THROW(expert_exchange(racks_of_8(72), {.ranks = 12}, Dispatch::copy_per_expert), ContractError);
  EXPECT_THROW(expert_exchange(racks_of_8(72), {.experts = 8, .ranks = 16}, Dispatch::copy_per_expert),
               ContractError);
  EXPECT_THROW(place_by_locality(std::vector<int64_t>(9), 9, 2), ContractError);
}

}  // namespace
}  // namespace fathom::book
