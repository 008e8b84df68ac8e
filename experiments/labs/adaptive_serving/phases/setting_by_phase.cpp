#include "setting_by_phase.h"

#include <algorithm>
#include <utility>

#include "core/expect.h"
#include "experiments/engine_session.h"
#include "measure/statistics.h"

namespace fathom::lab::phases {
namespace {

using engine::GeneratorStats;

class EnginesByPhase final : public engine::Generator {
 public:
  EnginesByPhase(const std::vector<engine::EngineConfig>& configs,
                 const std::array<size_t, kPhases>& settings, const std::array<size_t, kPhases>& requests)
      : engines_(configs.size()), settings_(settings), requests_(requests) {
    for (const size_t setting : settings)
      if (!engines_[setting]) engines_[setting] = engine_session::engine_of(configs[setting])();
  }

  std::variant<engine::RequestId, engine::Refusal> submit(engine::Request request,
                                                          engine::Listener listener) override {
    for (; submitted_ == requests_[phase_]; ++phase_) submitted_ = 0;
    ++submitted_;
    return engines_[settings_[phase_]]->submit(std::move(request), std::move(listener));
  }
  void cancel(engine::RequestId, engine::FinishReason) override {
    FATHOM_EXPECT(false, "a replay cancels no request: ids of two engines may be equal");
  }
  int64_t max_context() const override { return engines_[settings_[0]]->max_context(); }
  bool drain(std::chrono::nanoseconds timeout) override {
    return std::all_of(engines_.begin(), engines_.end(),
                       [&](const auto& each) { return !each || each->drain(timeout); });
  }
  // The counters that a session reports, summed.
  GeneratorStats stats() const override {
    GeneratorStats sum;
    for (const auto& each : engines_) {
      if (!each) continue;
      const GeneratorStats one = each->stats();
      sum.running += one.running;
      sum.pages += one.pages;
      sum.pages_in_use += one.pages_in_use;
      sum.steps += one.steps;
      sum.step_rows += one.step_rows;
      sum.drafted_tokens += one.drafted_tokens;
      sum.accepted_tokens += one.accepted_tokens;
      sum.memory.weights = one.memory.weights;  // mapped once
      sum.memory.kv_cache += one.memory.kv_cache;
      sum.memory.workspace += one.memory.workspace;
    }
    return sum;
  }

 private:
  std::vector<std::unique_ptr<engine::Generator>> engines_;  // by setting; null: has no phase
  const std::array<size_t, kPhases> settings_, requests_;
  size_t phase_ = 0, submitted_ = 0;
};

}  // namespace

void PhaseTimes::add(size_t setting, const std::vector<double>& phase_s) {
  FATHOM_EXPECT(phase_s.size() == kPhases, "a replay has all phases");
  for (size_t phase = 0; phase < kPhases; ++phase) seconds_[setting][phase].push_back(phase_s[phase]);
}

size_t PhaseTimes::fastest(size_t phase) const {
  size_t best = 0;
  for (size_t setting = 0; setting < kSettings; ++setting) {
    if (seconds_[setting][phase].empty()) return 0;
    if (measure::median(seconds_[setting][phase]) < measure::median(seconds_[best][phase])) best = setting;
  }
  return best;
}

std::unique_ptr<engine::Generator> engines_by_phase(const std::vector<engine::EngineConfig>& configs,
                                                    const std::array<size_t, kPhases>& settings,
                                                    const std::array<size_t, kPhases>& requests) {
  return std::make_unique<EnginesByPhase>(configs, settings, requests);
}

}  // namespace fathom::lab::phases
