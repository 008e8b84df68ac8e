// Disturbances of a run, as the kernel counts them. Never used to drop samples: dropping the rounds with a
// context switch loses half of them and gains nothing. It explains a wide interval and marks a record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fathom::measure {

// Totals since some origin, or their growth between two readings. A field is absent where this machine does
// not report it.
struct Noise {
  std::optional<double> steal_s        = {};  // all CPUs: runnable, but the hypervisor ran another guest
  std::optional<double> cpu_pressure_s = {};  // machine: some task waited for a CPU
  std::optional<double> run_delay_s    = {};  // this thread: runnable, waiting for a CPU
  // All of this thread:
  std::optional<int64_t> voluntary_switches = {}, involuntary_switches = {};
  std::optional<int64_t> minor_faults = {}, major_faults = {};
};

// Call it from the measured thread: some fields are of the calling thread. `procfs` is for tests.
Noise read_noise(const std::string& procfs = "/proc");

// Field by field; absent where one of the readings is.
Noise growth(const Noise& before, const Noise& after);

}  // namespace fathom::measure
