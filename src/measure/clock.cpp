#include "measure/clock.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

#include "core/expect.h"
#include "measure/statistics.h"

namespace fathom::measure {
namespace {

clockid_t id_of(Clock clock) {
  switch (clock) {
    case Clock::wall:
      return CLOCK_MONOTONIC_RAW;
    case Clock::thread_cpu:
      return CLOCK_THREAD_CPUTIME_ID;
    case Clock::process_cpu:
      return CLOCK_PROCESS_CPUTIME_ID;
  }
  contract_broken("a known clock", "a clock outside its enumeration", __FILE__, __LINE__);
}

}  // namespace

std::string_view name(Clock clock) {
  switch (clock) {
    case Clock::wall:
      return "wall";
    case Clock::thread_cpu:
      return "thread_cpu";
    case Clock::process_cpu:
      return "process_cpu";
  }
  contract_broken("a known clock", "a clock outside its enumeration", __FILE__, __LINE__);
}

int64_t now_ns(Clock clock) {
  timespec now;
  FATHOM_SYSTEM(clock_gettime(id_of(clock), &now));
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

ClockProbe probe(Clock clock) {
  constexpr int kBatches = 32, kCalls = 64;
  std::array<double, kBatches> cost_ns;
  int64_t step_ns = std::numeric_limits<int64_t>::max();
  for (double& cost : cost_ns) {
    const int64_t start = now_ns(clock);
    int64_t previous    = start;
    for (int i = 0; i < kCalls; ++i) {
      const int64_t now = now_ns(clock);
      if (now > previous) step_ns = std::min(step_ns, now - previous);
      previous = now;
    }
    cost = static_cast<double>(previous - start) / kCalls;
  }
  // A clock coarser than the probe has shown no step; wait for one.
  for (const int64_t start = now_ns(clock); step_ns == std::numeric_limits<int64_t>::max();)
    if (const int64_t now = now_ns(clock); now > start) step_ns = now - start;
  return {.resolution_ns = static_cast<double>(step_ns), .call_ns = median(cost_ns)};
}

}  // namespace fathom::measure
