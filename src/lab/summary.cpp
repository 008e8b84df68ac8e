#include "lab/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "lab/floor_check.h"
#include "measure/interval.h"
#include "measure/statistics.h"
#include "measure/verdict.h"

namespace fathom::lab {
namespace {

constexpr double kMargin = 0.02;

Spread spread_of(const std::vector<double>& samples) {
  Spread spread{.median          = measure::median(samples),
                .lo              = 0,
                .hi              = 0,
                .min             = *std::min_element(samples.begin(), samples.end()),
                .p10             = measure::quantile(samples, 0.1),
                .p90             = measure::quantile(samples, 0.9),
                .mad             = measure::median_absolute_deviation(samples),
                .autocorrelation = measure::lag1_autocorrelation(samples)};
  const auto interval = measure::median_interval(samples, 0.95);
  spread.lo           = interval ? interval->lo : spread.min;
  spread.hi           = interval ? interval->hi : *std::max_element(samples.begin(), samples.end());
  return spread;
}

void judge_ratio(VariantRecord& record, const std::optional<measure::Interval>& ratio) {
  if (ratio) record.ratio = Ratio{ratio->median, ratio->lo, ratio->hi};
  record.verdict = measure::name(measure::judge(ratio, kMargin));
}

}  // namespace

void set_time(VariantRecord& record, const std::vector<double>& samples_ns) {
  record.samples_ns    = samples_ns;
  const auto quantiles = measure::quantiles64(samples_ns);
  record.quantiles_ns.assign(quantiles.begin(), quantiles.end());
  record.time_ns      = spread_of(samples_ns);
  const double time_s = record.time_ns->median * 1e-9;
  const double bytes  = static_cast<double>(record.bytes_read + record.bytes_written);
  if (bytes > 0) record.metrics["bytes_per_s"] = {bytes / time_s, "higher"};
  if (record.flops > 0) record.metrics["flops_per_s"] = {record.flops / time_s, "higher"};
  for (const std::string work : {"requests", "tokens", "samples"})
    if (const auto count = record.metrics.find(work); count != record.metrics.end())
      record.metrics[work + "_per_s"] = {count->second.value / time_s, "higher"};
}

void set_ratio(VariantRecord& record, const std::vector<double>& log_ratios, double confidence) {
  judge_ratio(record, measure::ratio_interval(log_ratios, confidence));
}

void set_ratio_in_cycles(VariantRecord& record, const std::vector<double>& log_ratios) {
  std::vector<double> known;
  for (const double ratio : log_ratios)
    if (std::isfinite(ratio)) known.push_back(ratio);  // the clock could not be read in every sample
  if (!known.empty()) record.metrics["ratio_in_cycles"] = {std::exp(measure::median(known)), "higher"};
}

void set_caught(VariantRecord& record, const Caught& caught) {
  record.status    = caught.outcome;
  record.caught_by = caught.defence;
  record.detail    = caught.detail;
  record.verdict   = "INVALID";
  if (caught.outcome == Outcome::invalid) record.invalid_reason = caught.detail;
}

std::vector<double> log_ratios(const std::vector<double>& base, const std::vector<double>& samples) {
  std::vector<double> logs;
  for (size_t i = 0; i < std::min(base.size(), samples.size()); ++i)
    logs.push_back(std::log(base[i] / samples[i]));
  return logs;
}

std::optional<measure::Interval> ratio_of_few_rounds(const std::vector<double>& logs) {
  constexpr std::array<double, 6> kStudent{0, 0, 12.706, 4.303, 3.182, 2.776};  // two-sided 95 %, by rounds
  const size_t n = logs.size();
  if (n < 2) return std::nullopt;
  const auto [least, most] = std::minmax_element(logs.begin(), logs.end());
  double lo = *least, hi = *most;
  if (n < kStudent.size()) {
    const auto rounds = static_cast<double>(n);
    const double mean = std::accumulate(logs.begin(), logs.end(), 0.0) / rounds;
    double squares    = 0;
    for (const double log : logs) squares += (log - mean) * (log - mean);
    const double half = kStudent[n] * std::sqrt(squares / (rounds * (rounds - 1)));
    lo                = std::min(lo, mean - half);
    hi                = std::max(hi, mean + half);
  }
  return measure::Interval{std::exp(measure::median(logs)), std::exp(lo), std::exp(hi)};
}

void score_prediction(VariantRecord& record, const Prediction& prediction) {
  if (prediction.of == Prediction::Of::nothing) return;
  record.prediction = PredictionScore{prediction.to_string(), std::nullopt};
  if (prediction.of == Prediction::Of::share && record.share_of_limit)
    record.prediction->held =
        prediction.held(*record.share_of_limit) && *record.share_of_limit <= kLargestShare;
  if (prediction.of == Prediction::Of::ratio && record.ratio)
    record.prediction->held = prediction.held(record.ratio->median);
}

void score_predictions(const ExperimentInfo& experiment, PointRecord& point) {
  for (size_t v = 0; v < point.variants.size(); ++v)
    score_prediction(point.variants[v], experiment.variants[v].prediction);
}

void set_times_and_ratios(PointRecord& point, const std::vector<std::vector<double>>& samples_ns,
                          RatioInterval interval) {
  const auto usable = [&](size_t v) {
    return point.variants[v].status == Outcome::ok && !samples_ns[v].empty();
  };
  int compared = 0;
  for (size_t v = 1; v < point.variants.size(); ++v) compared += usable(v);
  const double confidence = measure::bonferroni(0.95, std::max(1, compared));
  for (size_t v = 0; v < point.variants.size(); ++v) {
    if (!usable(v)) continue;
    VariantRecord& variant = point.variants[v];
    set_time(variant, samples_ns[v]);
    if (v == 0) point.baseline = variant.id;
    if (v == 0 || !usable(0)) continue;
    const std::vector<double> logs = log_ratios(samples_ns[0], samples_ns[v]);
    if (interval == RatioInterval::order_statistics)
      set_ratio(variant, logs, confidence);
    else
      judge_ratio(variant, ratio_of_few_rounds(logs));
  }
}

}  // namespace fathom::lab
