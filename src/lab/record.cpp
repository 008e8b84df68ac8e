#include "lab/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/exit_code.h"
#include "core/read_file.h"
#include "lab/counter_binding.h"
#include "lab/json_text.h"
#include "measure/statistics.h"

namespace fathom::lab {
namespace {

using nlohmann::json;

// ---- the committed summary

constexpr size_t kMaxRecordBytes  = 14 * 1024;  // of 16 KB: the rest is the file's envelope
constexpr size_t kMaxWithCounters = 38 * 1024;  // of 64 KB: a deep set has some 45 of each variant
constexpr size_t kMostQuantiles   = 64;

// Four digits are finer than any interval here.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  // By way of decimal text, so that the file holds four digits.
  return std::stod(fmt::format("{:.3e}", value));
}

// Minimum and maximum included.
std::vector<double> quantiles(std::vector<double> samples, size_t count) {
  std::erase_if(samples, [](double s) { return !std::isfinite(s); });
  std::vector<double> out;
  for (size_t i = 0; i < count && !samples.empty(); ++i)
    out.push_back(rounded(measure::quantile(samples, static_cast<double>(i) / (count - 1))));
  return out;
}

template <class F>
void each_variant(ExperimentRecord& experiment, F&& visit) {
  for (PointRecord& point : experiment.points)
    for (VariantRecord& variant : point.variants) visit(variant);
}

// What `run --profile` adds to the metrics.
void drop_profile(PointRecord& point) {
  constexpr std::array kOfActivity = {"kernels",
                                      "kernel_time_ns",
                                      "copy_time_ns",
                                      "grid_size",
                                      "block_size",
                                      "waves_per_multiprocessor",
                                      "registers_per_thread",
                                      "shared_bytes_per_block",
                                      "local_bytes_per_thread",
                                      "theoretical_occupancy"};
  for (VariantRecord& variant : point.variants) {
    std::erase_if(variant.metrics, [&](const auto& metric) {
      return is_counted(metric.first) ||
             std::find(kOfActivity.begin(), kOfActivity.end(), metric.first) != kOfActivity.end();
    });
    variant.counters_bound_to.clear();
  }
}

void round(VariantRecord& variant) {
  if (variant.time_ns)
    for (const auto part : {&Spread::median, &Spread::lo, &Spread::hi, &Spread::min, &Spread::p10,
                            &Spread::p90, &Spread::mad, &Spread::autocorrelation})
      (*variant.time_ns).*part = rounded((*variant.time_ns).*part);
  if (variant.ratio)
    for (const auto part : {&Ratio::median, &Ratio::lo, &Ratio::hi})
      (*variant.ratio).*part = rounded((*variant.ratio).*part);
  if (variant.checked)
    for (const auto part : {&Checked::max_error, &Checked::tolerance})
      (*variant.checked).*part = rounded((*variant.checked).*part);
  for (auto* part : {&variant.share_of_limit, &variant.limit_rate, &variant.wall_ns, &variant.prepare_ns})
    if (*part) **part = rounded(**part);
  for (auto& [name, metric] : variant.metrics) metric.value = rounded(metric.value);
}

}  // namespace

Result<RunRecord> read_run(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? fs::path(path) / "results.json" : fs::path(path);
  const auto contents = read_file(file);
  if (!contents)
    return Error{fmt::format("{}; give a results.json or the folder of a run", contents.error().message)};

  json parsed;
  try {
    parsed = json::parse(*contents);
  } catch (const json::exception& error) {
    return Error{fmt::format("{} is not JSON: {}", file.string(), error.what())};
  }
  auto run = run_from_json(parsed);
  if (!run) return Error{fmt::format("{} is not a record of a run: {}", file.string(), run.error().message)};
  return run;
}

ExperimentRecord committed(ExperimentRecord experiment) {
  each_variant(experiment, [](VariantRecord& v) {
    if (!v.samples_ns.empty()) v.quantiles_ns = quantiles(v.samples_ns, kMostQuantiles);
    v.samples_ns.clear();
    round(v);
  });
  const auto size = [&] { return record_text(to_json(experiment)).size(); };
  const auto fits = [&] { return size() <= kMaxRecordBytes; };
  // Many points and variants: less of each, rather than a file that nobody can review. The least telling goes
  // first; what can be derived or read in the source goes last.
  for (size_t count = kMostQuantiles / 2; count >= 8 && !fits(); count /= 2)
    each_variant(experiment, [&](VariantRecord& v) { v.quantiles_ns = quantiles(v.quantiles_ns, count); });
  if (!fits()) each_variant(experiment, [](VariantRecord& v) { v.quantiles_ns.clear(); });
  // Counters of the first point stay.
  for (size_t p = 1; p < experiment.points.size() && !fits(); ++p) drop_profile(experiment.points[p]);
  if (!fits())
    each_variant(experiment, [](VariantRecord& v) {
      v.metrics.erase("bytes_per_s");
      v.metrics.erase("flops_per_s");
      v.idea.clear();
      v.techniques.clear();
    });
  if (size() > kMaxWithCounters && !experiment.points.empty()) drop_profile(experiment.points.front());
  if (!fits())  // the source says which points are beyond a variant
    for (PointRecord& point : experiment.points)
      std::erase_if(point.variants,
                    [](const VariantRecord& v) { return v.skip && v.skip->reason == "beyond_up_to"; });
  if (!fits())
    each_variant(experiment, [](VariantRecord& v) {
      if (v.time_ns) v.time_ns->mad = v.time_ns->autocorrelation = 0;
    });
  return experiment;  // what was checked stays, whatever the size
}

int exit_code(const RunRecord& run) {
  // The worst first; 1, a regression, needs a second record (lab/expectation.h).
  bool wrong = false, crashed = false, invalid = false, ran = false;
  const auto count = [&](Outcome outcome) {
    wrong |= outcome == Outcome::wrong;
    crashed |= outcome == Outcome::crashed || outcome == Outcome::timeout || outcome == Outcome::oom;
    invalid |= outcome == Outcome::invalid;
    ran |= outcome == Outcome::ok;
  };
  for (const ExperimentRecord& experiment : run.experiments) {
    // Status ok of an experiment does not mean that anything ran; status ok of a variant does.
    if (experiment.status != Outcome::ok) count(experiment.status);
    for (const PointRecord& point : experiment.points)
      for (const VariantRecord& variant : point.variants) {
        count(variant.status);
        invalid |= variant.verdict == "INVALID";
      }
  }
  return wrong     ? kExitWrongOutput
         : crashed ? kExitCrash
         : invalid ? kExitInvalid
         : ran     ? kExitOk
                   : kExitNothingRan;
}

}  // namespace fathom::lab
