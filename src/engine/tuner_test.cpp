#include "engine/tuner.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

namespace fathom::engine {
namespace {

// A world in which the default takes 1 ms a token of one request, and a request's further tokens less; every
// 25th step has a prompt of 40 tokens. `speed` is relative to the default's.
struct World {
  std::function<double(int64_t setting, int64_t step)> speed;
  std::function<int64_t(int64_t step)> demand = [](int64_t) { return 1; };
  double noise                                = 0;
};

struct Played {
  double default_s = 0, seconds = 0;  // what the default would have taken, and what it took
  double longest_step_s = 0;
  double lowest         = 0;  // least value of default_s / floor - seconds at any time
  std::vector<int64_t> steps;
};

Played play(const World& world, int64_t settings, int64_t steps, uint64_t seed = 1) {
  Tuner tuner({.settings = settings});
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Played played{.steps = std::vector<int64_t>(static_cast<size_t>(settings))};
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t demand  = world.demand(step);
    const int64_t prompt  = step % 25 == 0 ? 40 : 0;
    const int64_t setting = tuner.setting();
    const double by_default =
        1e-3 * (0.7 + 0.3 * static_cast<double>(demand)) + 1e-4 * static_cast<double>(prompt);
    const double seconds = by_default * (1 + world.noise * uniform(random)) / world.speed(setting, step);
    ++played.steps[static_cast<size_t>(setting)];
    played.default_s += by_default;
    played.seconds += seconds;
    played.longest_step_s = std::max(played.longest_step_s, seconds);
    played.lowest         = std::min(played.lowest, played.default_s / 0.98 - played.seconds);
    tuner.record({.seconds = seconds, .prompt_tokens = prompt, .tokens = demand, .demand = demand});
  }
  return played;
}

double share(const Played& played, size_t setting) {
  int64_t all = 0;
  for (const int64_t steps : played.steps) all += steps;
  return static_cast<double>(played.steps[setting]) / static_cast<double>(all);
}

TEST(Tuner, FindsTheFastestSetting) {
  const std::vector<double> speeds = {1, 0.8, 1.4, 1.1};
  for (const double noise : {0.0, 0.3}) {
    const Played played =
        play({.speed = [&](int64_t setting, int64_t) { return speeds[static_cast<size_t>(setting)]; },
              .noise = noise},
             4, 20000);
    EXPECT_GT(share(played, 2), 0.85) << noise;
    EXPECT_LT(played.seconds, played.default_s / 1.4 / 0.95) << "0.95 of the best, exploration and all";
  }
}

TEST(Tuner, CostsNothingWhereTheDefaultIsBest) {
  const std::vector<double> speeds = {1, 0.7, 0.9, 0.97};
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Played played =
        play({.speed = [&](int64_t setting, int64_t) { return speeds[static_cast<size_t>(setting)]; },
              .noise = 0.2},
             4, 20000, seed);
    EXPECT_LT(played.seconds, played.default_s / 0.98) << seed;
  }
}

TEST(Tuner, LearnsEachDemandByItself) {
  // Drafts, say: good for one request, bad for sixteen.
  const World world{.speed =
                        [](int64_t setting, int64_t step) {
                          const bool many = step / 500 % 2 == 1;
                          return setting == 0 ? 1.0 : many ? 0.8 : 1.3;
                        },
                    .demand = [](int64_t step) { return step / 500 % 2 == 1 ? 16 : 1; },
                    .noise  = 0.1};
  const Played played = play(world, 2, 20000);
  EXPECT_GT(share(played, 1), 0.4);
  EXPECT_LT(share(played, 1), 0.6);
  // A step for sixteen takes 5.5 times as long: the best is 0.5 * (1 / 1.3 + 5.5) / (0.5 * 6.5).
  const double best = played.default_s * (1 / 1.3 + 5.5) / 6.5;
  EXPECT_LT(played.seconds, best / 0.97);
}

TEST(Tuner, FollowsAChange) {
  const World world{
      .speed = [](int64_t setting, int64_t step) { return setting == 0   ? 1.0
                                                          : step < 10000 ? 1.4
                                                                         : 0.6; },
      .noise = 0.1};
  const Played half = play(world, 2, 10000), whole = play(world, 2, 20000);
  EXPECT_GT(share(half, 1), 0.85);
  const double after_s = whole.seconds - half.seconds, default_s = whole.default_s - half.default_s;
  EXPECT_LT(after_s, default_s / 0.95) << "it returns to the default";
  // And the other way round: what was bad becomes good.
  const Played risen = play(
      {.speed = [](int64_t setting, int64_t step) { return setting == 0   ? 1.0
                                                           : step < 10000 ? 0.6
                                                                          : 1.4; },
       .noise = 0.1},
      2, 40000);
  EXPECT_GT(share(risen, 1), 0.5) << "three quarters of the steps come after the change";
}

// The speed of the whole engine changes, as when another process takes its CPUs: no setting is to blame.
TEST(Tuner, SurvivesAChangeOfTheDefault) {
  const World world{
      .speed = [](int64_t setting,
                  int64_t step) { return (step < 10000 ? 1.0 : 0.4) * (setting == 0 ? 1.0 : 1.3); },
      .noise = 0.1};
  const Played played = play(world, 2, 20000);
  EXPECT_GT(share(played, 1), 0.8);
}

// Whatever the other settings do, all that was done took at most 1 / 0.98 of the default's time, a window and
// a step: at every moment, not only in the end.
TEST(Tuner, NeverFallsBelowTheFloor) {
  const auto adversary = [](uint64_t which) {
    return [which, calls = std::vector<int64_t>(4), random = std::mt19937_64(which)](int64_t setting,
                                                                                     int64_t) mutable {
      if (setting == 0) return 1.0;
      const int64_t call = ++calls[static_cast<size_t>(setting)];
      switch (which % 5) {
        case 0:
          return 0.001;  // hangs
        case 1:
          return call < 300 ? 1.5 : 0.05;  // betrays whoever trusts it
        case 2:
          return call % 64 < 40 ? 1.3 : 0.1;  // good for a window, then bad for one
        case 3:
          return 0.05 + static_cast<double>(random() % 100) / 50;  // anything
        default:
          return 0.95;  // slowly bleeds
      }
    };
  };
  for (uint64_t which = 0; which < 20; ++which) {
    const Played played   = play({.speed = adversary(which)}, 4, 10000);
    const double window_s = 32 * (1e-3 + 4e-3 / 25) + 5e-3;  // the first, with a prompt or two
    EXPECT_GT(played.lowest, -(window_s + 2 * played.longest_step_s)) << which;
  }
}

TEST(Tuner, HasNothingToChooseFromOneSetting) {
  const Played played = play({.speed = [](int64_t, int64_t) { return 1.0; }}, 1, 100);
  EXPECT_EQ(played.steps[0], 100);
}

// Without tokens generated there is nothing to compare with.
TEST(Tuner, StaysWithTheDefaultUntilItsCostIsKnown) {
  Tuner tuner({.settings = 3});
  for (int step = 0; step < 200; ++step) {
    tuner.record({.seconds = 1e-3, .prompt_tokens = 512, .tokens = 0, .demand = 4});
    ASSERT_EQ(tuner.setting(), 0);
  }
}

}  // namespace
}  // namespace fathom::engine
