// Clocks of the host, in nanoseconds from an arbitrary origin: only differences have meaning.
#pragma once

#include <cstdint>
#include <string_view>

namespace fathom::measure {

enum class Clock {
  // CLOCK_MONOTONIC_RAW: no steps and no slewing, which would stretch a second while it is measured.
  wall,
  // CPU time of this thread: excludes waiting and preemption, includes interrupts.
  thread_cpu,
  // The sum over all threads of the process.
  process_cpu,
};

std::string_view name(Clock clock);  // "wall", "thread_cpu", "process_cpu"

int64_t now_ns(Clock clock);

// Cost of a reading and resolution of a clock, measured in about a millisecond. An epoch should last at least
// 1000 times the larger.
struct ClockProbe {
  double resolution_ns = 0;  // smallest step seen between two readings, at least 1
  double call_ns       = 0;  // of one reading, median over batches
};
ClockProbe probe(Clock clock);

}  // namespace fathom::measure
