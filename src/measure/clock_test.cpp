#include "measure/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace fathom::measure {
namespace {

constexpr Clock kClocks[] = {Clock::wall, Clock::thread_cpu, Clock::process_cpu};

// Computes until the calling thread has used this much CPU.
void spend(int64_t cpu_ns) {
  const int64_t until = now_ns(Clock::thread_cpu) + cpu_ns;
  while (now_ns(Clock::thread_cpu) < until) {
  }
}

TEST(Clock, NeverRunsBackwards) {
  for (Clock clock : kClocks) {
    int64_t previous = now_ns(clock);
    for (int i = 0; i < 10'000; ++i) {
      const int64_t now = now_ns(clock);
      ASSERT_GE(now, previous) << name(clock);
      previous = now;
    }
  }
}

// Compares with another library's clock, in the directions that scheduling cannot change: a sleep lasts at
// least as long as requested, and the wall time covers the inner interval. Catches a wrong unit and exchanged
// clocks.
TEST(Clock, WallCountsSleepAndCpuDoesNot) {
  using std::chrono::steady_clock;
  const int64_t wall = now_ns(Clock::wall), cpu = now_ns(Clock::thread_cpu);
  const auto start = steady_clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto slept_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now() - start).count();
  const int64_t cpu_spent = now_ns(Clock::thread_cpu) - cpu, wall_spent = now_ns(Clock::wall) - wall;
  EXPECT_GE(static_cast<double>(wall_spent), 0.99 * static_cast<double>(slept_ns));  // raw clock, not slewed
  EXPECT_LT(cpu_spent, slept_ns / 2);
}

// Catches exchanged thread and process clocks: another thread's work counts in one and not the other.
TEST(Clock, ThreadClockIsOfThisThreadOnly) {
  constexpr int64_t kWork = 20'000'000;
  const int64_t own = now_ns(Clock::thread_cpu), all = now_ns(Clock::process_cpu);
  std::thread(spend, kWork).join();
  EXPECT_LT(now_ns(Clock::thread_cpu) - own, kWork / 2);
  EXPECT_GE(now_ns(Clock::process_cpu) - all, kWork);
}

TEST(Clock, ProbeIsPlausible) {
  for (Clock clock : kClocks) {
    const ClockProbe probed = probe(clock);
    EXPECT_GE(probed.resolution_ns, 1) << name(clock);
    EXPECT_LE(probed.resolution_ns, 20e6) << name(clock);  // a scheduler tick would be the coarsest
    EXPECT_GE(probed.call_ns, 1) << name(clock);
    EXPECT_LE(probed.call_ns, 1e6) << name(clock);
  }
}

}  // namespace
}  // namespace fathom::measure
