#include "lab/counter_binding.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace fathom::lab {
namespace {

bool holds_counters(const VariantRecord& variant) {
  return std::any_of(variant.metrics.begin(), variant.metrics.end(),
                     [](const auto& metric) { return is_counted(metric.first); });
}

// Numbers as committed records hold them, in four digits.
std::string digits(double value) { return fmt::format("{:.3e}", value); }

std::string binding_of(const std::string& machine, const ExperimentRecord& experiment,
                       const PointRecord& point, const VariantRecord& variant) {
  std::string bound = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", machine, experiment.id, experiment.source_hash,
                                  point.at.to_string(), variant.id,
                                  variant.time_ns ? digits(variant.time_ns->median) : "no time");
  for (const auto& [name, metric] : variant.metrics)
    if (is_counted(name)) bound += fmt::format("{} {}\n", name, digits(metric.value));
  return fmt::format("{:016x}", XXH3_64bits(bound.data(), bound.size()));
}

}  // namespace

bool is_counted(const std::string& metric) { return metric.starts_with("counted_"); }

void bind_counters(const std::string& machine, ExperimentRecord& experiment) {
  for (PointRecord& point : experiment.points)
    for (VariantRecord& variant : point.variants)
      if (holds_counters(variant))
        variant.counters_bound_to = binding_of(machine, experiment, point, variant);
}

void refuse_stale_counters(RunRecord& run) {
  for (ExperimentRecord& experiment : run.experiments)
    for (PointRecord& point : experiment.points)
      for (VariantRecord& variant : point.variants) {
        if (!holds_counters(variant) ||
            variant.counters_bound_to == binding_of(run.machine, experiment, point, variant))
          continue;
        std::erase_if(variant.metrics, [](const auto& metric) { return is_counted(metric.first); });
        variant.counters_bound_to.clear();
        variant.status    = Outcome::invalid;
        variant.caught_by = "counter_binding";
        variant.verdict   = "INVALID";
        variant.detail    = fmt::format(
               "its counters were not taken with this time: another build, run, machine, point or variant "
                  "than {} of {} at {} on {}",
               variant.id, experiment.id, point.at.to_string(), run.machine);
        variant.invalid_reason = variant.detail;
      }
}

}  // namespace fathom::lab
