#include "book/fault_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace fathom::book {
namespace {

constexpr int32_t kNever = FaultTimeline::kNever;

FaultTimeline timeline(const Fault& fault, const Watch& watch = {}) {
  FaultTimeline timeline;
  timeline.run(fault, watch);
  return timeline;
}

// What docs/serving.md says of our router and leases: dead at most 1.2 s after it fell silent, and pages free
// at most a lease after it.
TEST(FaultTimeline, BoundsOfOurRouter) {
  int32_t latest = 0, soonest = 1 << 30;
  for (const FaultKind kind : {FaultKind::stopped, FaultKind::cut_off})
    for (int32_t begin = 1; begin <= 1000; ++begin) {
      const FaultTimeline seen = timeline({kind, begin, 60'000});
      latest                   = std::max(latest, seen.noticed() - begin);
      soonest                  = std::min(soonest, seen.noticed() - begin);
      EXPECT_GE(seen.granted_again() - begin, 1800);
      EXPECT_LT(seen.granted_again() - begin, 2000);
    }
  EXPECT_EQ(soonest, 1000);
  EXPECT_EQ(latest, 1199);
}

TEST(FaultTimeline, AKilledWorkerIsNoticedAtOnceAndWritesNoMore) {
  const FaultTimeline seen = timeline({FaultKind::killed, 450, 0});
  EXPECT_EQ(seen.noticed(), 450);
  EXPECT_EQ(seen.granted_again(), 450);
  EXPECT_EQ(seen.healed(), kNever);
  EXPECT_EQ(seen.writes(), 4);
  EXPECT_EQ(seen.count(Fate::in_time), 4);
}

TEST(FaultTimeline, AShortPauseChangesNothing) {
  for (const FaultKind kind : {FaultKind::stopped, FaultKind::cut_off}) {
    const FaultTimeline seen = timeline({kind, 450, 700});
    EXPECT_EQ(seen.noticed(), kNever);
    EXPECT_EQ(seen.granted_again(), kNever);
    EXPECT_EQ(seen.count(Fate::in_time), seen.writes());
  }
}

// Chapter 19: a look at the clock lets one write of a stopped worker pass, and all that a worker sends into a
// partition while it believes in its lease; a tag lets none pass.
TEST(FaultTimeline, WhatEachGuardLetsPass) {
  const auto wrong = [](FaultKind kind, WriteGuard guard) {
    const FaultTimeline seen = timeline({kind, 450, 3000}, {.guard = guard});
    EXPECT_EQ(seen.granted_again(), 2400);
    return seen.count(Fate::wrong);
  };
  EXPECT_EQ(wrong(FaultKind::stopped, WriteGuard::none), 2);  // the one, and another before 3600
  EXPECT_EQ(wrong(FaultKind::stopped, WriteGuard::clock), 1);
  EXPECT_EQ(wrong(FaultKind::stopped, WriteGuard::tag), 0);
  EXPECT_EQ(wrong(FaultKind::cut_off, WriteGuard::none), 31);   // decided from 400 to 3400
  EXPECT_EQ(wrong(FaultKind::cut_off, WriteGuard::clock), 20);  // from 400 to 2300
  EXPECT_EQ(wrong(FaultKind::cut_off, WriteGuard::tag), 0);
}

// The same again, millisecond by millisecond: everybody acts on what he has heard.
struct Played {
  int32_t noticed = kNever, granted_again = kNever, told = kNever, in_time = 0, late = 0;
};

Played play(const Fault& fault, const Watch& watch, int32_t until) {
  Played seen;
  const int32_t healed = fault.begin + fault.lasts;
  int32_t asked = kNever, renewed = 0, decided = 0, left = watch.write, held_writes = 0;
  bool held_renewal = false, ended = false;
  const auto arrives = [&] { ++(seen.granted_again == kNever ? seen.in_time : seen.late); };
  const auto renews  = [&](int32_t now) {
    if (seen.granted_again == kNever)
      renewed = now;
    else if (seen.told == kNever)
      seen.told = now;
  };
  for (int32_t now = 0; now <= until; ++now) {
    const bool beat = now % watch.heartbeat == 0, faulty = now >= fault.begin && now < healed;
    const bool cut     = faulty && fault.kind == FaultKind::cut_off;
    const bool stopped = fault.kind == FaultKind::stopped && now > fault.begin && now <= healed;

    // The router, whose question waits for the end of the fault.
    if (asked != kNever && now == asked + watch.timeout) seen.noticed = now;
    if (now == healed) asked = kNever;
    if (faulty && beat && asked == kNever && seen.noticed == kNever) asked = now;

    // The memory.
    if (seen.granted_again == kNever && now == renewed + watch.lease) seen.granted_again = now;
    if (now == healed) {
      if (held_renewal) renews(now);
      for (; held_writes > 0; --held_writes) arrives();
    }

    // The worker: its renewals, the end of a write, and whether it decides upon another.
    if (beat && cut) held_renewal = true;
    if (beat && !faulty) renews(now);
    if (stopped || ended) continue;
    if (now > 0 && --left == 0) {
      if (cut)
        ++held_writes;
      else
        arrives();
      decided = now;
      left    = watch.write;
    }
    ended = decided == now &&
            (seen.told != kNever || (watch.guard == WriteGuard::clock && seen.granted_again != kNever));
  }
  return seen;
}

TEST(FaultTimeline, IsWhatHappensMillisecondByMillisecond) {
  std::mt19937 generator(7);
  const auto draw = [&](int32_t low, int32_t high) {
    return low + static_cast<int32_t>(generator() % static_cast<uint32_t>(high - low + 1));
  };
  int late = 0, unnoticed = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const Fault fault{trial % 2 ? FaultKind::stopped : FaultKind::cut_off, draw(1, 300), draw(0, 900)};
    const Watch watch{.heartbeat = draw(1, 80),
                      .timeout   = draw(1, 300),
                      .lease     = draw(1, 300) + 80,
                      .write     = draw(1, 60),
                      .guard     = static_cast<WriteGuard>(draw(0, 2))};
    const FaultTimeline seen = timeline(fault, watch);
    ASSERT_LT(seen.writes(), kMostWrites);
    const Played played = play(fault, watch, seen.end() + fault.lasts);
    SCOPED_TRACE(testing::Message() << "trial " << trial << ", begin " << fault.begin << ", lasts "
                                    << fault.lasts << ", heartbeat " << watch.heartbeat << ", timeout "
                                    << watch.timeout << ", lease " << watch.lease << ", write " << watch.write
                                    << ", guard " << static_cast<int>(watch.guard));
    ASSERT_EQ(seen.noticed(), played.noticed);
    ASSERT_EQ(seen.granted_again(), played.granted_again);
    ASSERT_EQ(seen.told(), played.told);
    ASSERT_EQ(seen.count(Fate::refused) + seen.count(Fate::wrong), played.late);
    late += played.late > 0;
    unnoticed += played.noticed == kNever;
  }
  EXPECT_GT(late, 100);
  EXPECT_GT(unnoticed, 100);
}

}  // namespace
}  // namespace fathom::book
