// Are the counters of perf_event_open there, and do they tell the truth?
#pragma once

#include <optional>
#include <string>

namespace fathom::machine {

// Absent when they work, else why not. Hardware: opens `instructions` and counts a loop of known length,
// because some virtual machines hand out counters that run but are wrong.
std::optional<std::string> missing_hardware_counters();
std::optional<std::string> missing_software_counters();

}  // namespace fathom::machine
