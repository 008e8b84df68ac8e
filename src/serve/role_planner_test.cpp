// The planner on made-up loads: a pool's demand is that of so many full workers.
#include "serve/role_planner.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace fathom::serve {
namespace {

struct Fleet {
  int64_t prefill = 1, decode = 1;
  RolePlanner planner{{}};

  std::optional<WorkerRole> plan(double prompts, double answers) {
    const auto move =
        planner.plan({.workers = prefill, .utilization = prompts / static_cast<double>(prefill)},
                     {.workers = decode, .utilization = answers / static_cast<double>(decode)});
    if (move == WorkerRole::prefill) ++prefill, --decode;
    if (move == WorkerRole::decode) --prefill, ++decode;
    return move;
  }
};

TEST(RolePlannerTest, AWorkerFollowsTheLoad) {
  Fleet fleet{.prefill = 2, .decode = 2};
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(fleet.plan(0.2, 1.8));
  EXPECT_EQ(fleet.plan(0.2, 1.8), WorkerRole::decode) << "the third time in a row";
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(fleet.plan(0.2, 1.8));
  for (int i = 0; i < 10; ++i) (void)fleet.plan(1.7, 0.3);
  EXPECT_EQ(fleet.prefill, 3);
  EXPECT_EQ(fleet.decode, 1);
}

TEST(RolePlannerTest, EachPoolKeepsAWorkerAndAnOverloadOfBothMovesNone) {
  for (const auto& [prefill, decode] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 3}, {3, 1}}) {
    Fleet fleet{.prefill = prefill, .decode = decode};
    for (int i = 0; i < 20; ++i) EXPECT_FALSE(fleet.plan(5, 5));  // who has two workers needs both
  }
  Fleet fleet{.prefill = 1, .decode = 1};
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(fleet.plan(0, 5));
}

TEST(RolePlannerTest, AMissedLatencyTargetCountsAsAFullPool) {
  RolePlanner planner({});
  std::optional<WorkerRole> move;
  for (int i = 0; i < 3; ++i)
    move = planner.plan({.workers = 1, .utilization = 0.3, .latency = 1.1},
                        {.workers = 2, .utilization = 0.1, .latency = 0.2});
  EXPECT_EQ(move, WorkerRole::prefill);
  for (int i = 0; i < 20; ++i)
    EXPECT_FALSE(planner.plan({.workers = 1, .utilization = 0.3, .latency = 1.1},
                              {.workers = 2, .utilization = 0.1, .latency = 0.9}))
        << "the others would miss theirs";
}

TEST(RolePlannerTest, ASpikeMovesNobody) {
  Fleet fleet{.prefill = 2, .decode = 2};
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(fleet.plan(0.2, i % 3 == 2 ? 0.2 : 1.9));
}

// Random demands that stay for a while, with noise of a tenth: while they stay, workers move one way only,
// and in the end no pool is short of a worker that the other could spare.
TEST(RolePlannerTest, NeverOscillatesOnRandomTraces) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> noise(0.9, 1.1), share(0, 1);
    const int64_t workers = 2 + static_cast<int64_t>(random() % 9);
    const int64_t first   = 1 + static_cast<int64_t>(random()) % (workers - 1);
    Fleet fleet{.prefill = first, .decode = workers - first};
    for (int segment = 0; segment < 6; ++segment) {
      const double total   = 1.1 * share(random) * static_cast<double>(workers);
      const double prompts = total * share(random), answers = total - prompts;
      std::optional<WorkerRole> way;
      for (int i = 0; i < 12 * workers; ++i) {
        const auto move = fleet.plan(prompts * noise(random), answers * noise(random));
        if (!move) continue;
        if (way) {
          ASSERT_EQ(*move, *way) << "seed " << seed;
        }
        way = move;
        ASSERT_GE(fleet.prefill, 1);
        ASSERT_GE(fleet.decode, 1);
      }
      const auto short_of_one = [](double demand, int64_t has, double other, int64_t others) {
        return others >= 2 && demand / static_cast<double>(has) > 0.8 / 0.9 &&
               other / static_cast<double>(others - 1) < 0.6 / 1.1;
      };
      ASSERT_FALSE(short_of_one(prompts, fleet.prefill, answers, fleet.decode)) << "seed " << seed;
      ASSERT_FALSE(short_of_one(answers, fleet.decode, prompts, fleet.prefill)) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace fathom::serve
