// The parts of the table of rules, and what they share.
#pragma once

#include <vector>

#include "diagnose/rules.h"

namespace fathom::diagnose {

std::vector<Rule> rules_of_gpus();
std::vector<Rule> rules_of_cpus();
std::vector<Rule> rules_of_both();  // of limits and declared work

// Where thresholds come from.
inline constexpr std::string_view kNcuHigh    = "Nsight Compute, SpeedOfLight: high above 80 %";
inline constexpr std::string_view kNcuLatency = "Nsight Compute, SpeedOfLight: latency below 60 %";
inline constexpr std::string_view kCatalog    = "analysis-004 of the catalog";
inline constexpr std::string_view kSector     = "ours: three quarters of a 32-byte sector";
inline constexpr std::string_view kLanes      = "ours: three quarters of a warp's 32 lanes";
inline constexpr std::string_view kOurs       = "ours";
inline constexpr std::string_view kRidge      = "the ridge that was measured on this machine";

inline Criterion at_least(std::string_view quantity, double threshold, std::string_view source = kOurs) {
  return {quantity, true, threshold, source};
}
inline Criterion at_most(std::string_view quantity, double threshold, std::string_view source = kOurs) {
  return {quantity, false, threshold, source};
}

}  // namespace fathom::diagnose
