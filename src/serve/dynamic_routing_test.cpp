#include "serve/dynamic_routing.h"

#include <gtest/gtest.h>

#include <random>

namespace fathom::serve {
namespace {

using enum DynamicRouting::Decision;

TEST(DynamicRoutingTest, LongPromptsGoToThePrefillPool) {
  DynamicRouting routing({});
  const DynamicRouting::Pools idle{.prefill_workers = 1};
  for (const int64_t tokens : {0, 1, 255, 256, 4095, 4096})
    EXPECT_EQ(routing.decide(tokens, idle), local_short);
  EXPECT_EQ(routing.decide(4097, idle), remote_long);
  EXPECT_EQ(routing.decide(4097, {.prefill_workers = 0}), local_no_prefill);
}

TEST(DynamicRoutingTest, ABusyDecodePoolHandsOverWhatIsWorthIt) {
  DynamicRouting routing({});
  EXPECT_EQ(routing.decide(300, {.prefill_workers = 1, .decode = 0.8}), local_short);
  EXPECT_EQ(routing.decide(300, {.prefill_workers = 1, .decode = 0.81}), remote_decode_busy);
  EXPECT_EQ(routing.decide(255, {.prefill_workers = 1, .decode = 0.9}), local_short);
  EXPECT_EQ(routing.decide(5000, {.prefill_workers = 1, .decode = 0.9}), remote_long);
  EXPECT_EQ(routing.decide(300, {.prefill_workers = 1, .decode = 0.7}), remote_decode_busy) << "still busy";
  EXPECT_EQ(routing.decide(300, {.prefill_workers = 1, .decode = 0.59}), local_short);
  EXPECT_EQ(routing.decide(300, {.prefill_workers = 1, .decode = 0.7}), local_short) << "not busy again yet";
}

TEST(DynamicRoutingTest, ABusyPrefillPoolGetsNothingUntilItIsIdleAgain) {
  DynamicRouting routing({});
  EXPECT_EQ(routing.decide(5000, {.prefill_workers = 2, .prefill = 0.9}), local_prefill_busy);
  EXPECT_EQ(routing.decide(5000, {.prefill_workers = 2, .prefill = 0.7}), local_prefill_busy);
  EXPECT_EQ(routing.decide(300, {.prefill_workers = 2, .prefill = 0.7, .decode = 0.9}), local_prefill_busy);
  EXPECT_EQ(routing.decide(5000, {.prefill_workers = 2, .prefill = 0.5}), remote_long);
}

// Loads that swing between the two thresholds change no decision, whatever was decided before.
TEST(DynamicRoutingTest, LoadsBetweenTheThresholdsChangeNothing) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> between(0.6, 0.8), anywhere(0, 1);
  for (int round = 0; round < 200; ++round) {
    DynamicRouting routing({});
    (void)routing.decide(5000,
                         {.prefill_workers = 1, .prefill = anywhere(random), .decode = anywhere(random)});
    const auto load = [&] {
      return DynamicRouting::Pools{
          .prefill_workers = 1, .prefill = between(random), .decode = between(random)};
    };
    const auto first_long = routing.decide(5000, load()), first_short = routing.decide(300, load());
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(routing.decide(5000, load()), first_long);
      EXPECT_EQ(routing.decide(300, load()), first_short);
    }
  }
}

}  // namespace
}  // namespace fathom::serve
