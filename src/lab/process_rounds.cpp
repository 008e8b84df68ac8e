#include "lab/process_rounds.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "lab/summary.h"
#include "measure/latin_square.h"
#include "measure/statistics.h"

namespace fathom::lab {
namespace {

using Tick = std::function<void(const PhaseBoard::Phase&)>;

// The timed points with a record of every variant, and the samples behind them.
struct Rounds {
  std::vector<PointRecord> points;
  std::vector<std::vector<std::vector<double>>> samples_ns;  // [point][variant]
  // [point][variant]: what each process says of its start and of its later calls, by name.
  std::vector<std::vector<std::map<std::string, std::vector<double>>>> metrics;
  std::vector<std::vector<std::vector<double>>> prepare_ns;

  void add_point(PointRecord point, size_t variants) {
    point.variants.assign(variants, VariantRecord{});
    points.push_back(std::move(point));
    samples_ns.emplace_back(variants);
    metrics.emplace_back(variants);
    prepare_ns.emplace_back(variants);
  }
};

bool is_ok(const VariantRecord& variant) { return variant.status == Outcome::ok; }

// One process, which makes one call of the variant at every timed point.
void add_sample(const ExperimentInfo& experiment, const MeasureOptions& options, size_t variant,
                const Tick& on_tick, Rounds& rounds) {
  size_t p              = 0;
  const auto on_message = [&](const nlohmann::json& message) {
    if (!message.contains("point")) return;
    auto point = point_from_json(message["point"]);
    FATHOM_EXPECT(point.has_value() && !point->variants.empty(), "a child sent a point that cannot be read");
    if (rounds.points.size() <= p) rounds.add_point(*point, experiment.variants.size());
    VariantRecord& mine       = rounds.points[p].variants[variant];
    const VariantRecord& seen = point->variants.front();
    if (mine.id.empty() || !is_ok(seen)) mine = seen;
    auto& samples = rounds.samples_ns[p][variant];
    samples.insert(samples.end(), seen.samples_ns.begin(), seen.samples_ns.end());
    for (const auto& [name, metric] : seen.metrics) rounds.metrics[p][variant][name].push_back(metric.value);
    if (seen.prepare_ns) rounds.prepare_ns[p][variant].push_back(*seen.prepare_ns);
    ++p;
  };
  const ChildEnding ending = run_child(experiment, options, {.on_message = on_message, .on_tick = on_tick});
  if (ending.complete) return;
  for (PointRecord& point : rounds.points) {
    point.variants[variant].id     = experiment.variants[variant].id;
    point.variants[variant].status = ending.outcome;
    point.variants[variant].detail = ending.detail;
  }
}

}  // namespace

bool runs_in_process_rounds(const ExperimentInfo& experiment, const RunOptions& run) {
  if (run.check_only || experiment.shape != Shape::call) return false;
  return run.cold_start || std::any_of(experiment.variants.begin(), experiment.variants.end(),
                                       [](const VariantInfo& v) { return v.own_process; });
}

void run_process_rounds(const ExperimentInfo& experiment, const MeasureOptions& given,
                        ExperimentRecord& record, const Tick& on_tick) {
  MeasureOptions options = given;
  options.run.cold_start = false;
  options.run.check_only = true;
  run_children(experiment, options, {.on_tick = on_tick}, record);
  if (record.points.empty()) return;
  const std::vector<VariantRecord> checked = std::exchange(record.points, {}).front().variants;

  // Places of variants in the declaration.
  std::vector<size_t> place_of, timed;
  for (const VariantRecord& variant : checked) {
    const auto found = std::find_if(experiment.variants.begin(), experiment.variants.end(),
                                    [&](const VariantInfo& v) { return v.id == variant.id; });
    place_of.push_back(static_cast<size_t>(found - experiment.variants.begin()));
    if (is_ok(variant)) timed.push_back(place_of.back());
  }
  options                = given;
  options.run.cold_start = true;
  const int64_t wanted   = given.run.repeat > 0 ? given.run.repeat : given.run.quick ? 12 : 24;
  const int64_t count    = timed.empty() ? 0 : wanted;  // none where all are skipped or wrong
  Rounds rounds;
  for (int64_t round = 0; round < count; ++round)
    for (const int turn : measure::round_order(static_cast<int>(timed.size()), round, given.run.seed)) {
      const size_t v   = timed[static_cast<size_t>(turn)];
      options.variants = {experiment.variants[v].id};
      options.run.seed = given.run.seed + static_cast<uint64_t>(round) * 1000 + v;
      add_sample(experiment, options, v, on_tick, rounds);
    }

  if (rounds.points.empty()) rounds.add_point(PointRecord{}, experiment.variants.size());
  for (size_t p = 0; p < rounds.points.size(); ++p) {
    PointRecord& point = rounds.points[p];
    point.cache        = "cold_process";
    point.rounds       = count;
    point.stopped      = "rounds";
    // What the check points said of variants that were never timed.
    for (size_t c = 0; c < checked.size(); ++c)
      if (VariantRecord& mine = point.variants[place_of[c]]; mine.id.empty()) mine = checked[c];
    for (size_t v = 0; v < point.variants.size(); ++v) {
      for (auto& [name, metric] : point.variants[v].metrics)
        metric.value = measure::median(rounds.metrics[p][v].at(name));
      if (!rounds.prepare_ns[p][v].empty())
        point.variants[v].prepare_ns = measure::median(rounds.prepare_ns[p][v]);
    }
    set_times_and_ratios(point, rounds.samples_ns[p], RatioInterval::order_statistics);
    // Under --cold-start the predictions are about warm calls.
    if (!given.run.cold_start) score_predictions(experiment, point);
    std::erase_if(point.variants, [](const VariantRecord& variant) { return variant.id.empty(); });
  }
  record.points = std::move(rounds.points);
}

}  // namespace fathom::lab
