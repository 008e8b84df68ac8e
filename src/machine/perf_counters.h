// Whether the counters of perf_event_open exist and are correct.
#pragma once

#include <optional>
#include <string>

namespace fathom::machine {

// Absent when they work, otherwise the reason. For hardware counters, counts the instructions of a loop of
// known length, because some virtual machines offer counters that run but are wrong.
std::optional<std::string> missing_hardware_counters();
std::optional<std::string> missing_software_counters();

}  // namespace fathom::machine
