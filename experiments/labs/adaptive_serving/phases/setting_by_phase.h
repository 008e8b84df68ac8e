// The oracle: an engine for each fixed setting, and each phase of the workload goes to the engine whose
// setting was the fastest in that phase when all of the workload ran under it. It knows two things that no
// running engine does: how long the phases take under every setting, and when one ends. Changing the setting
// costs it nothing.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/config.h"
#include "engine/generator.h"

namespace fathom::lab::phases {

inline constexpr size_t kPhases                                    = 4;
inline constexpr std::array<std::string_view, kPhases> kPhaseNames = {"repetitive", "random", "many",
                                                                      "prompts"};
inline constexpr size_t kSettings                                  = engine::kSettingNames.size();

// Seconds of each phase under a fixed setting, of all replays so far in this process.
class PhaseTimes {
 public:
  void add(size_t setting, const std::vector<double>& phase_s);
  // The setting with the lowest median; the default, 0, where nothing is known.
  size_t fastest(size_t phase) const;

 private:
  std::array<std::array<std::vector<double>, kPhases>, kSettings> seconds_;
};

// `requests`: of each phase, which come one phase after the other. `settings`: for each phase the index of a
// configuration. Only the engines that have a phase are started.
std::unique_ptr<engine::Generator> engines_by_phase(const std::vector<engine::EngineConfig>& configs,
                                                    const std::array<size_t, kPhases>& settings,
                                                    const std::array<size_t, kPhases>& requests);

}  // namespace fathom::lab::phases
