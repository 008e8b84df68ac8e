#include "report/lessons.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

#include "lab/quantity.h"
#include "report/highlights.h"

namespace fathom::report {

using namespace lab;

namespace {

struct Scored {
  double score = 0;  // the highest is chosen
  Lesson lesson;
};

struct PredictedValue {
  bool of_share = false, at_least = false;
  double value = 0;
};

// "share >= 0.8", "ratio 2.7", as lab/experiment_info.h writes them.
std::optional<PredictedValue> predicted_value(const std::string& text) {
  PredictedValue out{.of_share = text.starts_with("share "),
                     .at_least = text.find(">=") != std::string::npos};
  const size_t number = text.find_first_of("0123456789.");
  if (number == std::string::npos || (!out.of_share && !text.starts_with("ratio "))) return std::nullopt;
  out.value = std::strtod(text.c_str() + number, nullptr);
  return out.value > 0 ? std::optional(out) : std::nullopt;
}

std::string at_text(const ExperimentRecord& experiment, const PointRecord& point) {
  return experiment.points.size() > 1 ? " at " + point_text(point.at) : "";
}

std::string limit_text(const PointRecord& point) {
  return point.limit.empty() ? "its limit" : "the " + point.limit;
}

std::string times_text(double ratio) { return ratio_text(ratio) + " as fast as"; }

bool usable_share(const VariantRecord& variant) {
  return variant.share_of_limit && std::isfinite(*variant.share_of_limit) && *variant.share_of_limit > 0 &&
         *variant.share_of_limit <= 1;
}

// One rule of choice, applied to a point that can be believed.
using Rule = std::optional<Scored> (*)(const ExperimentRecord&, const PointRecord&,
                                       const VariantRecord& base);

std::optional<Scored> largest_gain(const ExperimentRecord& experiment, const PointRecord& point,
                                   const VariantRecord& base) {
  const VariantRecord* best = best_of(point);
  if (!best || best->verdict != "FASTER") return std::nullopt;
  return Scored{
      best->ratio->lo,
      {.kind     = "Largest gain",
       .sentence = fmt::format(
           "`{}` is {} `{}`{}{}.", best->id, times_text(best->ratio->median), base.id,
           at_text(experiment, point),
           usable_share(*best) ? ", at " + share_text(*best->share_of_limit) + " of the limit" : "")}};
}

std::optional<Scored> nearest_limit(const ExperimentRecord& experiment, const PointRecord& point,
                                    const VariantRecord& base) {
  const VariantRecord* best = best_of(point);
  if (!best || best->verdict != "FASTER" || !usable_share(*best)) return std::nullopt;
  return Scored{
      *best->share_of_limit,
      {.kind     = "Nearest to the limit",
       .sentence = fmt::format(
           "`{}` reaches {} of {}{}{}.", best->id, share_text(*best->share_of_limit), limit_text(point),
           at_text(experiment, point),
           usable_share(base) ? fmt::format(", `{}` {}", base.id, share_text(*base.share_of_limit)) : "")}};
}

std::optional<Scored> worst_prediction(const ExperimentRecord& experiment, const PointRecord& point,
                                       const VariantRecord&) {
  std::optional<Scored> worst;
  for (const VariantRecord& v : point.variants) {
    if (!is_ours(v) || !is_valid(v) || !v.prediction || v.prediction->held.value_or(true)) continue;
    const auto predicted = predicted_value(v.prediction->text);
    if (!predicted || (predicted->of_share ? !usable_share(v) : !v.ratio)) continue;
    const double reached = predicted->of_share ? *v.share_of_limit : v.ratio->median;
    const double missed  = std::abs(std::log(reached / predicted->value));
    const auto text      = [&](double value) {
      return predicted->of_share ? share_text(value) : ratio_text(value);
    };
    if (!std::isfinite(missed) || (worst && missed <= worst->score)) continue;
    worst = Scored{missed,
                   {.kind     = "Prediction missed by most",
                    .sentence = fmt::format("Predicted for `{}`: {}{}{}; measured: {}{}.", v.id,
                                            predicted->at_least ? "at least " : "", text(predicted->value),
                                            predicted->of_share ? " of the limit" : "", text(reached),
                                            at_text(experiment, point))}};
  }
  return worst;
}

std::optional<Scored> backfired(const ExperimentRecord& experiment, const PointRecord& point,
                                const VariantRecord& base) {
  std::optional<Scored> worst;
  for (const VariantRecord& v : point.variants) {
    if (v.kind != "optimized" || !is_valid(v) || v.verdict != "SLOWER" || !v.ratio || !(v.ratio->hi > 0))
      continue;
    // What was expected to be slower shows its lesson without having backfired.
    const auto predicted = predicted_value(v.prediction ? v.prediction->text : "");
    if (predicted && !predicted->of_share && predicted->value < 1) continue;
    if (worst && 1 / v.ratio->hi <= worst->score) continue;
    worst = Scored{
        1 / v.ratio->hi,
        {.kind     = "Backfired",
         .sentence = fmt::format("`{}` takes {} the time of `{}`{}.", v.id, ratio_text(1 / v.ratio->median),
                                 base.id, at_text(experiment, point))}};
  }
  return worst;
}

std::optional<Scored> library_ahead(const ExperimentRecord& experiment, const PointRecord& point,
                                    const VariantRecord&) {
  const VariantRecord* best = best_of(point);
  std::optional<Scored> furthest;
  for (const VariantRecord& v : point.variants) {
    if (!best || v.kind != "library" || !is_valid(v) || !v.ratio || v.ratio->lo <= best->ratio->hi) continue;
    const double ahead = v.ratio->median / best->ratio->median;
    if (!std::isfinite(ahead) || (furthest && ahead <= furthest->score)) continue;
    furthest = Scored{ahead,
                      {.kind     = "Library ahead",
                       .sentence = fmt::format("`{}` is {} our best, `{}`{}.", v.id, times_text(ahead),
                                               best->id, at_text(experiment, point))}};
  }
  return furthest;
}

std::optional<Scored> most_left(const ExperimentRecord& experiment, const PointRecord& point,
                                const VariantRecord&) {
  const VariantRecord* best = best_of(point);
  if (!best || !usable_share(*best)) return std::nullopt;
  return Scored{1 / *best->share_of_limit,
                {.kind     = "Most left to gain",
                 .sentence = fmt::format("the best variant, `{}`, reaches {} of {}{}.", best->id,
                                         share_text(*best->share_of_limit), limit_text(point),
                                         at_text(experiment, point))}};
}

// Of headline points only, so that a sentence agrees with the picture and the table beside it.
std::optional<Lesson> choose(const RunRecord& run, Rule rule, const std::set<size_t>& taken) {
  std::optional<Scored> chosen;
  for (size_t e = 0; e < run.experiments.size(); ++e) {
    const PointRecord* point  = taken.contains(e) ? nullptr : headline_point(run.experiments[e]);
    const VariantRecord* base = point ? baseline_of(*point) : nullptr;
    if (!base || !is_valid(*base) || is_advisory(*point)) continue;
    auto found = rule(run.experiments[e], *point, *base);
    if (!found || !std::isfinite(found->score) || (chosen && found->score <= chosen->score)) continue;
    chosen                    = std::move(found);
    chosen->lesson.experiment = e;
  }
  return chosen ? std::optional(std::move(chosen->lesson)) : std::nullopt;
}

}  // namespace

std::vector<Lesson> lessons_of(const RunRecord& run, size_t most) {
  std::vector<Lesson> lessons;
  std::set<size_t> taken;
  const auto take = [&](Rule rule) {
    auto lesson = lessons.size() < most ? choose(run, rule, taken) : std::nullopt;
    if (!lesson) return false;
    taken.insert(lesson->experiment);
    lessons.push_back(std::move(*lesson));
    return true;
  };
  for (const Rule rule : {largest_gain, nearest_limit, worst_prediction, backfired, library_ahead, most_left})
    take(rule);
  while (take(largest_gain)) lessons.back().kind = "Also gained";
  return lessons;
}

}  // namespace fathom::report
