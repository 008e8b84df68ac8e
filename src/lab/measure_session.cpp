#include "lab/measure_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/expect.h"
#include "cuda/nvtx_range.h"
#include "lab/input_sets.h"
#include "lab/summary.h"
#include "lab/variant_records.h"
#include "lab/verified_call.h"
#include "measure/clock.h"
#include "measure/latin_square.h"
#include "measure/statistics.h"
#include "measure/verdict.h"

namespace fathom::lab {
namespace {

using Outputs = std::vector<std::vector<int64_t>>;

// How the answers of a replay compare with the baseline's. A request that one of them turned away is not
// compared.
struct Comparison {
  bool same       = true;
  int64_t refused = 0;  // requests
  int64_t tokens  = 0;  // compared
};

Comparison compare(const Outputs& outputs, const Outputs& baseline) {
  Comparison seen{.same = outputs.size() == baseline.size()};
  for (size_t i = 0; i < outputs.size() && seen.same; ++i) {
    seen.refused += outputs[i].empty();
    if (outputs[i].empty() || baseline[i].empty()) continue;
    seen.same = outputs[i] == baseline[i];
    seen.tokens += std::ssize(outputs[i]);
  }
  return seen;
}

// Runs f; what this machine lacks makes a typed skip.
template <class F>
void run_or_skip(VariantRecord& record, F&& f) {
  try {
    if (const auto caught = guarded(f)) set_caught(record, *caught);
    return;
  } catch (const NotEnoughMemory& e) {
    record.skip = Skip{"needs_memory", e.what()};
  } catch (const Unavailable& e) {
    record.skip = Skip{e.reason(), e.what()};
  }
  record.status = Outcome::skipped;
}

// The time that is compared.
double goal_of(const std::string& goal, const Replay& replay, double wall_ns) {
  if (goal.empty()) return wall_ns;
  const auto found = replay.metrics.find(goal);
  FATHOM_EXPECT(found != replay.metrics.end() && found->second.value > 0,
                fmt::format("a replay has no time '{}', which is this experiment's goal", goal));
  return found->second.value;
}

struct Replayed {
  double time_ns;
  Replay replay;
};

Replayed start_and_replay(const ExperimentInfo& experiment, const VariantInfo& variant, const Point& at,
                          uint64_t seed) {
  const auto session = variant.start(at);
  session->prepare(seed);
  const NvtxRange range(variant.id.c_str());
  const int64_t start = measure::now_ns(measure::Clock::wall);
  Replay replay       = session->replay();
  const auto wall_ns  = static_cast<double>(measure::now_ns(measure::Clock::wall) - start);
  const double time   = goal_of(experiment.goal, replay, wall_ns);
  return {time, std::move(replay)};
}

// The baseline's answers are the reference. Variants are compared after the round, whatever their order in it
// was.
void compare_answers(const ExperimentInfo& experiment, const std::map<int, Outputs>& outputs, bool timed,
                     PointRecord& point) {
  for (const auto& [v, output] : outputs) {
    VariantRecord& record = point.variants[static_cast<size_t>(v)];
    const Comparison seen = compare(output, outputs.begin()->second);
    if (!seen.same)
      set_caught(record, {Outcome::wrong, timed ? "timed_check" : "reference",
                          "its answers differ from those of " +
                              point.variants[static_cast<size_t>(outputs.begin()->first)].id});
    else if (seen.tokens == 0 ||
             (seen.refused > 0 && !experiment.variants[static_cast<size_t>(v)].may_refuse))
      set_caught(record, {Outcome::wrong, "unanswered",
                          fmt::format("{} of {} requests have no answer", seen.refused, output.size())});
    else if (timed) {
      if (!record.checked) record.checked.emplace();
      ++record.checked->timed_calls;
      record.checked->elements += seen.tokens;
    }
  }
}

// The baseline against its clone, round by round. Where the same configuration is found faster or slower than
// itself, the verdicts of this point are advisory.
std::optional<AaControl> aa_control(const std::vector<double>& baseline, const std::vector<double>& clone) {
  const auto ratio = ratio_of_few_rounds(log_ratios(baseline, clone));
  if (!ratio) return std::nullopt;
  const auto verdict = measure::judge(ratio);
  return AaControl{ratio->lo, ratio->hi,
                   verdict == measure::Verdict::faster || verdict == measure::Verdict::slower};
}

PointRecord measure_point(const ExperimentInfo& experiment, const MeasureOptions& options, const Point& at,
                          Seeds& seeds, Events& events) {
  PointRecord point{.at       = at,
                    .cache    = "session",
                    .clock    = experiment.goal.empty() ? "wall" : experiment.goal,
                    .stopped  = "rounds",
                    .variants = records_at(experiment, at, blank_records(experiment, options))};
  if (options.run.aa) point.variants.resize(1);
  std::vector<std::vector<double>> samples(point.variants.size());
  std::vector<double> clone_samples;
  std::vector<std::map<std::string, std::vector<double>>> metrics(point.variants.size());
  // The first round warms what outlives a session (page cache, CPU clocks) and is checked, not timed.
  const int64_t rounds = options.run.repeat > 0 ? options.run.repeat : options.run.quick ? 3 : 6;
  const int64_t timed  = options.run.check_only ? 0 : rounds;
  for (int64_t round = -1; round < timed; ++round) {
    const uint64_t seed = seeds.next();  // one workload for all variants of the round
    std::map<int, Outputs> outputs;
    // The baseline's clone is the last entry. It takes its turn in the timed rounds.
    const auto clone  = static_cast<int>(point.variants.size());
    const int entries = round >= 0 ? clone + 1 : clone;
    for (const int turn : measure::round_order(entries, round + 1, options.run.seed)) {
      const auto v          = static_cast<size_t>(turn == clone ? 0 : turn);
      VariantRecord& record = point.variants[v];
      if (record.status != Outcome::ok) continue;
      events.phase(record.id, round < 0 ? "warm up" : "measure",
                   static_cast<double>(round + 1) / static_cast<double>(timed + 1));
      run_or_skip(record, [&] {
        Replayed seen = start_and_replay(experiment, experiment.variants[v], at, seed);
        if (turn == clone) return clone_samples.push_back(seen.time_ns);
        if (round >= 0) {
          samples[v].push_back(seen.time_ns);
          for (const auto& [name, metric] : seen.replay.metrics) {
            metrics[v][name].push_back(metric.value);
            record.metrics[name] = metric;
          }
        }
        outputs[turn] = std::move(seen.replay.outputs);
      });
    }
    compare_answers(experiment, outputs, round >= 0, point);
    point.rounds = round + 1;
  }
  set_times_and_ratios(point, samples, RatioInterval::few_rounds);
  if (point.variants[0].status == Outcome::ok) point.aa = aa_control(samples[0], clone_samples);
  score_predictions(experiment, point);
  for (size_t v = 0; v < metrics.size(); ++v)
    for (const auto& [name, values] : metrics[v])
      point.variants[v].metrics[name].value = measure::median(values);
  return point;
}

}  // namespace

void measure_session(const ExperimentInfo& experiment, const MeasureOptions& options, Events& events) {
  Seeds seeds(options.run.seed);
  for (const Point& at : timed_points(experiment, options))
    events.point(measure_point(experiment, options, at, seeds, events));
}

}  // namespace fathom::lab
