#include "lab/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/expect.h"
#include "lab/summary.h"
#include "lab/timed_point.h"
#include "measure/clock.h"
#include "measure/latin_square.h"
#include "measure/statistics.h"

namespace fathom::lab {

ExperimentInfo info_of(const SessionExperiment& e) {
  ExperimentInfo info{.shape       = Shape::session,
                      .question    = e.question,
                      .axes        = e.axes,
                      .backend     = e.backend,
                      .catalog     = e.catalog,
                      .declaration = &e};
  for (const SessionVariant& v : e.variants)
    info.variants.push_back({.id         = v.id,
                             .kind       = info.variants.empty() ? Kind::baseline : Kind::optimized,
                             .techniques = v.techniques,
                             .idea       = v.idea,
                             .prediction = v.prediction,
                             .threads    = v.threads,
                             .has_launch = v.start != nullptr});
  return info;
}

namespace {

using Outputs = std::vector<std::vector<int64_t>>;

bool same_answers(const Outputs& a, const Outputs& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.empty() || y.empty() || x == y; });
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

double goal_of(const SessionExperiment& experiment, const Replay& replay, double wall_ns) {
  if (experiment.goal.empty()) return wall_ns;
  const auto found = replay.metrics.find(experiment.goal);
  FATHOM_EXPECT(found != replay.metrics.end() && found->second.value > 0,
                fmt::format("a replay has no time '{}', which is this experiment's goal", experiment.goal));
  return found->second.value;
}

void score_predictions(const ExperimentInfo& info, PointRecord& point) {
  for (size_t v = 0; v < point.variants.size(); ++v) {
    const Prediction& prediction = info.variants[v].prediction;
    VariantRecord& record        = point.variants[v];
    if (prediction.of == Prediction::Of::nothing) continue;
    record.prediction = PredictionScore{prediction.to_string(), std::nullopt};
    if (prediction.of == Prediction::Of::ratio && record.ratio)
      record.prediction->held = prediction.held(record.ratio->median);
  }
}

}  // namespace

void measure_session(const ExperimentInfo& info, const MeasureOptions& options, Events& events) {
  const auto& experiment = *static_cast<const SessionExperiment*>(info.declaration);
  Seeds seeds(options.run.seed);
  for (const Point& at : timed_points(info, options.run)) {
    if (std::find(options.done.begin(), options.done.end(), at.to_string()) != options.done.end()) continue;
    PointRecord point{.at       = at,
                      .cache    = "session",
                      .clock    = experiment.goal.empty() ? "wall" : experiment.goal,
                      .stopped  = "rounds",
                      .variants = blank_records(info, options)};
    std::vector<std::vector<double>> samples(point.variants.size());
    std::vector<std::map<std::string, std::vector<double>>> metrics(point.variants.size());
    // The first round warms what outlives a session (page cache, CPU clocks) and is checked, not timed.
    const int64_t rounds = options.run.repeat > 0 ? options.run.repeat : options.run.quick ? 3 : 6;
    const int64_t timed  = options.run.check_only ? 0 : rounds;
    for (int64_t round = -1; round < timed; ++round) {
      const uint64_t seed = seeds.next();  // one workload for all variants of the round
      // The baseline's answers are the reference, so the others are compared after the round, whatever the
      // order.
      std::map<int, Outputs> outputs;
      for (const int v :
           measure::round_order(static_cast<int>(point.variants.size()), round + 1, options.run.seed)) {
        VariantRecord& record = point.variants[static_cast<size_t>(v)];
        if (record.status != Outcome::ok) continue;
        events.phase(record.id, round < 0 ? "warm up" : "measure",
                     static_cast<double>(round + 1) / static_cast<double>(timed + 1));
        run_or_skip(record, [&] {
          const auto session = experiment.variants[static_cast<size_t>(v)].start(at);
          session->prepare(seed);
          const int64_t start = measure::now_ns(measure::Clock::wall);
          Replay replay       = session->replay();
          const auto wall_ns  = static_cast<double>(measure::now_ns(measure::Clock::wall) - start);
          if (round >= 0) {
            samples[static_cast<size_t>(v)].push_back(goal_of(experiment, replay, wall_ns));
            for (const auto& [name, metric] : replay.metrics) {
              metrics[static_cast<size_t>(v)][name].push_back(metric.value);
              record.metrics[name] = metric;
            }
          }
          outputs[v] = std::move(replay.outputs);
        });
      }
      for (const auto& [v, output] : outputs)
        if (!same_answers(output, outputs.begin()->second))
          set_caught(point.variants[static_cast<size_t>(v)],
                     {Outcome::wrong, round < 0 ? "reference" : "timed_check",
                      "its answers differ from those of " +
                          point.variants[static_cast<size_t>(outputs.begin()->first)].id});
      point.rounds = round + 1;
    }
    set_times_and_ratios(point, samples, RatioInterval::range);
    score_predictions(info, point);
    for (size_t v = 0; v < metrics.size(); ++v)
      for (const auto& [name, values] : metrics[v])
        point.variants[v].metrics[name].value = measure::median(values);
    events.point(point);
  }
}

}  // namespace fathom::lab
