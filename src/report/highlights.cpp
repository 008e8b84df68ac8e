#include "report/highlights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fathom::report {

using namespace lab;

namespace {

void count_verdict(const VariantRecord& variant, bool advisory, Tally& tally) {
  if (is_invalid(variant)) {
    ++tally.invalid;
    return;
  }
  if (!variant.verdict || variant.status != Outcome::ok) return;
  if (*variant.verdict == "FASTER")
    ++tally.faster;
  else if (*variant.verdict == "SLOWER")
    ++tally.slower;
  else if (*variant.verdict == "SAME")
    ++tally.same;
  else
    ++tally.inconclusive;
  tally.advisory += advisory ? 1 : 0;
}

std::string skip_text(const std::optional<Skip>& skip) {
  if (!skip) return "skipped";
  return skip->need.empty() ? fmt::format("skipped: {}", skip->reason)
                            : fmt::format("skipped: {}, {}", skip->reason, skip->need);
}

std::string why_unusable(const VariantRecord& variant) {
  if (variant.status == Outcome::skipped) return skip_text(variant.skip);
  if (variant.status == Outcome::wrong) return "wrong output";
  if (is_failed(variant.status)) return std::string(to_string(variant.status));
  if (is_invalid(variant)) return "invalid measurement";
  return variant.status == Outcome::ok ? "no ratio" : std::string(to_string(variant.status));
}

}  // namespace

bool is_failed(Outcome outcome) {
  return outcome == Outcome::wrong || outcome == Outcome::crashed || outcome == Outcome::timeout ||
         outcome == Outcome::oom;
}

bool is_invalid(const VariantRecord& variant) {
  return variant.status == Outcome::invalid || variant.verdict == "INVALID";
}

bool is_ours(const VariantRecord& variant) { return variant.kind == "optimized" || variant.kind == "engine"; }

bool is_valid(const VariantRecord& variant) { return variant.status == Outcome::ok && !is_invalid(variant); }

const VariantRecord* baseline_of(const PointRecord& point) {
  for (const VariantRecord& variant : point.variants)
    if (variant.id == point.baseline) return &variant;
  return nullptr;
}

const VariantRecord* best_of(const PointRecord& point) {
  const VariantRecord* best = nullptr;
  for (const VariantRecord& variant : point.variants) {
    if (!is_ours(variant) || !is_valid(variant) || !variant.ratio) continue;
    if (!(variant.ratio->median > 0) || !std::isfinite(variant.ratio->median)) continue;
    if (!best || variant.ratio->median > best->ratio->median) best = &variant;
  }
  return best;
}

bool was_skipped(const ExperimentRecord& experiment) {
  if (experiment.points.empty()) return experiment.status == Outcome::skipped;
  return std::all_of(experiment.points.begin(), experiment.points.end(), [](const PointRecord& point) {
    return std::all_of(point.variants.begin(), point.variants.end(),
                       [](const VariantRecord& variant) { return variant.status == Outcome::skipped; });
  });
}

bool is_advisory(const PointRecord& point) { return point.aa && point.aa->advisory; }

bool is_above_limit(const VariantRecord& variant) {
  constexpr double kMost = 1.02;
  return is_valid(variant) && variant.share_of_limit && *variant.share_of_limit > kMost;
}

const PointRecord* headline_point(const ExperimentRecord& experiment) {
  for (const PointRecord& point : experiment.points)
    if (best_of(point)) return &point;
  return experiment.points.empty() ? nullptr : &experiment.points.front();
}

std::string why_no_best(const ExperimentRecord& experiment, const PointRecord* point) {
  if (!point) {
    if (experiment.status == Outcome::skipped) return skip_text(experiment.skip);
    return experiment.status == Outcome::ok ? "no point was run" : std::string(to_string(experiment.status));
  }
  const VariantRecord* base = baseline_of(*point);
  if (base && !is_valid(*base)) return fmt::format("baseline {}: {}", base->id, why_unusable(*base));
  std::string reasons;
  for (const VariantRecord& variant : point->variants)
    if (is_ours(variant))
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", variant.id, why_unusable(variant));
  return reasons.empty() ? "no optimized variant" : reasons;
}

Tally tally_of(const RunRecord& run) {
  Tally tally;
  for (const ExperimentRecord& experiment : run.experiments) {
    ++tally.experiments;
    if (experiment.points.empty()) {
      tally.skipped += experiment.status == Outcome::skipped ? 1 : 0;
      tally.failed += is_failed(experiment.status) ? 1 : 0;
      tally.invalid += experiment.status == Outcome::invalid ? 1 : 0;
    }
    for (const PointRecord& point : experiment.points) {
      ++tally.points;
      for (const VariantRecord& variant : point.variants) {
        tally.skipped += variant.status == Outcome::skipped ? 1 : 0;
        tally.failed += is_failed(variant.status) ? 1 : 0;
        if (variant.id != point.baseline || is_invalid(variant))
          count_verdict(variant, is_advisory(point), tally);
        if (variant.prediction && variant.prediction->held)
          ++(*variant.prediction->held ? tally.predictions_held : tally.predictions_failed);
      }
    }
  }
  return tally;
}

Aggregate geometric_mean_of(const RunRecord& run) {
  Aggregate aggregate;
  double log_sum = 0;
  for (const ExperimentRecord& experiment : run.experiments) {
    double points_sum = 0;
    int points        = 0;
    std::vector<Aggregate::Excluded> excluded;
    for (const PointRecord& point : experiment.points) {
      if (const VariantRecord* best = best_of(point)) {
        points_sum += std::log(best->ratio->median);
        ++points;
      } else {
        excluded.push_back({id_at(experiment, point), why_no_best(experiment, &point)});
      }
    }
    if (points == 0) {
      const PointRecord* first = experiment.points.empty() ? nullptr : &experiment.points.front();
      excluded                 = {{experiment.id, why_no_best(experiment, first)}};
    } else {
      log_sum += points_sum / points;
      ++aggregate.experiments;
    }
    aggregate.excluded.insert(aggregate.excluded.end(), excluded.begin(), excluded.end());
  }
  if (aggregate.experiments > 0) aggregate.mean = std::exp(log_sum / aggregate.experiments);
  return aggregate;
}

std::string point_text(const Point& at) {
  std::string text;
  for (const auto& [name, value] : at.parameters())
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, to_string(value));
  return text;
}

std::string id_at(const ExperimentRecord& experiment, const PointRecord& point, const std::string& variant) {
  const std::string at = point.at.to_string();
  return experiment.id + (variant.empty() ? "" : "/" + variant) + (at.empty() ? "" : "?" + at);
}

}  // namespace fathom::report
