// Clocks of the host, in nanoseconds from an origin of their own: only differences mean anything.
#pragma once

#include <cstdint>
#include <string_view>

namespace fathom::measure {

enum class Clock {
  wall,  // CLOCK_MONOTONIC_RAW: no steps, and no slewing that would stretch a second while it is measured
  thread_cpu,   // time this thread ran; excludes waiting and being preempted, includes interrupts taken
  process_cpu,  // the same summed over all threads
};

std::string_view name(Clock clock);  // "wall", "thread_cpu", "process_cpu"

int64_t now_ns(Clock clock);

// What reading a clock costs and how finely it ticks, measured now in about a millisecond. An epoch should
// last at least 1000 times the larger.
struct ClockProbe {
  double resolution_ns = 0;  // smallest step seen between two readings, at least 1
  double call_ns       = 0;  // of one reading, median over batches
};
ClockProbe probe(Clock clock);

}  // namespace fathom::measure
