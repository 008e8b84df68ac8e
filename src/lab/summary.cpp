#include "lab/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/timed_point.h"
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
}

void set_ratio(VariantRecord& record, const std::vector<double>& log_ratios, double confidence) {
  const auto ratio = measure::ratio_interval(log_ratios, confidence);
  if (ratio) record.ratio = Ratio{ratio->median, ratio->lo, ratio->hi};
  record.verdict = measure::name(measure::judge(ratio, kMargin));
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
    if (interval == RatioInterval::order_statistics) {
      set_ratio(variant, logs, confidence);
    } else {
      const auto [least, most] = std::minmax_element(logs.begin(), logs.end());
      const measure::Interval ratio{std::exp(measure::median(logs)), std::exp(*least), std::exp(*most)};
      variant.ratio   = Ratio{ratio.median, ratio.lo, ratio.hi};
      variant.verdict = measure::name(measure::judge(ratio, kMargin));
    }
  }
}

PointRecord TimedPoint::summarise(std::vector<VariantRecord> records) {
  const Cost cost = (*sets_)[0].cost();
  PointRecord point{.at               = at_,
                    .cache            = std::string(to_string(experiment_.cache)),
                    .clock            = experiment_.backend == Backend::cuda ? "gpu"
                                        : experiment_.clock == Clock::cpu    ? "cpu"
                                                                             : "wall",
                    .floor_ns         = floor_of(cost, pools_.of(kAllThreads).threads()),
                    .rounds           = rounds_,
                    .calls_per_sample = calls_,
                    .stopped          = stopped_,
                    .noise            = noise_};
  const bool timed = baseline_ >= 0 && entries_[baseline_].alive() && !entries_[baseline_].clock_ns.empty();
  if (timed) point.baseline = entries_[baseline_].name;
  if (options_.run.aa && timed) {
    // The method measures itself: its "variants" are the baseline again, and the baseline with 5 % more to
    // do.
    VariantRecord base = records[entries_[baseline_].variant];
    records.clear();
    for (const Entry& entry : entries_) {
      VariantRecord record = base;
      record.id            = &entry == &entries_[baseline_] ? base.id : base.id + ":" + entry.name;
      record.kind          = &entry == &entries_[baseline_] ? "baseline" : "optimized";
      record.prediction    = std::nullopt;
      records.push_back(std::move(record));
    }
  }

  for (Entry& entry : entries_) {
    if (entry.role == Role::control) continue;
    if (entry.role == Role::clone && timed && entry.alive()) {
      if (const auto interval = measure::median_interval(log_ratios(entry), 0.99))
        point.aa =
            AaControl{std::exp(interval->lo), std::exp(interval->hi), interval->lo > 0 || interval->hi < 0};
    }
    const bool shown = entry.role == Role::variant || options_.run.aa;
    if (!shown) continue;
    const auto index =
        options_.run.aa ? static_cast<size_t>(&entry - entries_.data()) : static_cast<size_t>(entry.variant);
    if (index >= records.size()) continue;
    VariantRecord& record = records[index];
    record.bytes_read     = cost.read + cost.disk_read;
    record.bytes_written  = cost.written;
    record.flops          = cost.flops;
    if (entry.prepare_ns >= 0) record.prepare_ns = static_cast<double>(entry.prepare_ns);
    if (entry.checked > 0)
      record.checked = Checked{entry.checked, entry.elements, entry.max_error, entry.tolerance};
    if (entry.caught) {
      // What was caught has no time: a wrong answer is not a fast one.
      set_caught(record, *entry.caught);
      continue;
    }
    if (entry.clock_ns.empty()) continue;
    set_time(record, entry.clock_ns);
    if (experiment_.clock == Clock::cpu) record.wall_ns = measure::median(entry.wall_ns);
    if (timed && &entry != &entries_[baseline_]) {
      set_ratio(record, log_ratios(entry), confidence());
      set_ratio_in_cycles(record, lab::log_ratios(entries_[baseline_].cycles, entry.cycles));
    }

    const int threads = pools_.of(info(entry).threads).threads();
    for (const Entry& control : entries_) {
      if (control.role != Role::control) continue;
      // A GPU has one control, whatever threads of the host a variant uses.
      if (experiment_.backend == Backend::cpu && controls_[control.variant]->threads() != threads) continue;
      const Control& limit = *controls_[control.variant];
      std::vector<double> shares;
      for (size_t r = 0; r < std::min(control.rates.size(), entry.wall_ns.size()); ++r)
        shares.push_back(limit.limit_ns(control.rates[r]) / entry.wall_ns[r]);
      if (shares.empty()) continue;
      record.share_of_limit = measure::median(shares);
      record.limit_rate     = measure::median(control.rates);
      point.limit           = limit.words();
    }

    if (experiment_.limit == Limit::disk)
      if (const auto limit = disk_limit()) {
        const double share =
            static_cast<double>(cost.disk_read) / limit->bytes_per_s / (record.time_ns->median * 1e-9);
        // Faster than the disk was ever seen to be: somebody below us caches, and a share would say nothing.
        if (share <= 1) record.share_of_limit = share;
        record.limit_rate = limit->bytes_per_s;
        point.limit       = limit->words;
      }

    const Prediction& prediction = info(entry).prediction;
    if (prediction.of != Prediction::Of::nothing && !options_.run.aa) {
      PredictionScore score{prediction.to_string(), std::nullopt};
      if (prediction.of == Prediction::Of::share && record.share_of_limit)
        score.held = prediction.held(*record.share_of_limit);
      if (prediction.of == Prediction::Of::ratio && record.ratio)
        score.held = prediction.held(record.ratio->median);
      record.prediction = score;
    }
  }
  point.variants = std::move(records);
  return point;
}

}  // namespace fathom::lab
