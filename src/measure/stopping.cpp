#include "measure/stopping.h"

#include <algorithm>

#include "core/expect.h"
#include "measure/interval.h"

namespace fathom::measure {

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::precision:
      return "precision";
    case StopReason::rounds:
      return "rounds";
    case StopReason::time:
      return "time";
  }
  contract_broken("a known reason", "a stop reason outside its enumeration", __FILE__, __LINE__);
}

std::optional<StopReason> should_stop(const StoppingRule& rule, const Progress& progress) {
  FATHOM_EXPECT(rule.check_every >= 1, "a stopping rule must check every 1 or more rounds");
  const auto narrow = [&](std::span<const double> series) {
    const std::optional<Interval> interval = median_interval(series, rule.confidence);
    return interval && (interval->hi - interval->lo) / 2 <= rule.half_width;
  };
  const auto precise = [&](std::span<const double> series) {
    const auto earlier = static_cast<int64_t>(series.size()) - rule.check_every;
    return narrow(series) && earlier > 0 && narrow(series.first(static_cast<size_t>(earlier)));
  };
  const bool may_check = progress.rounds % rule.check_every == 0 && progress.rounds >= rule.min_rounds &&
                         progress.measured_s >= rule.min_measured_s;
  if (may_check && std::all_of(progress.log_ratios.begin(), progress.log_ratios.end(), precise))
    return StopReason::precision;
  if (progress.rounds >= rule.max_rounds) return StopReason::rounds;
  if (progress.elapsed_s >= rule.max_elapsed_s) return StopReason::time;
  return std::nullopt;
}

}  // namespace fathom::measure
