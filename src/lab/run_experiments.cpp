#include "lab/run_experiments.h"

#include <algorithm>
#include <chrono>

#include "core/expect.h"
#include "lab/child_process.h"
#include "lab/counter_binding.h"
#include "lab/process_rounds.h"
#include "lab/registry.h"
#include "lab/source_hash.h"
#include "machine/machine_id.h"

namespace fathom::lab {
namespace {

using Steady = std::chrono::steady_clock;

double seconds_since(Steady::time_point start) {
  return std::chrono::duration<double>(Steady::now() - start).count();
}

Outcome worst_of(const ExperimentRecord& experiment) {
  // In the order of exit codes: wrong, crash or time-out or memory, invalid; skipped only when all is.
  constexpr Outcome kOrder[] = {Outcome::wrong,   Outcome::crashed, Outcome::timeout, Outcome::oom,
                                Outcome::invalid, Outcome::ok,      Outcome::skipped};
  for (const Outcome outcome : kOrder)
    for (const PointRecord& point : experiment.points)
      for (const VariantRecord& variant : point.variants)
        if (variant.status == outcome) return outcome;
  return Outcome::ok;
}

// The clocks of a run: what is left of it, estimated and allowed.
class RunClock {
 public:
  RunClock(int experiments, double suite_timeout_s) : total_(experiments), timeout_s_(suite_timeout_s) {}

  void begin_experiment() { experiment_began_ = Steady::now(); }
  void end_experiment() { ++done_; }
  int done() const { return done_; }
  double experiment_s() const { return seconds_since(experiment_began_); }

  bool suite_timeout() const { return timeout_s_ > 0 && suite_seconds_left() <= 0; }
  double suite_seconds_left() const { return timeout_s_ > 0 ? timeout_s_ - seconds_since(began_) : 0; }

  // This experiment by its own fraction, the others by the average of those that are done.
  double estimate_s(double fraction) const {
    const double here = experiment_s(), all = seconds_since(began_);
    const double own = fraction > 0.02 ? here * (1 - fraction) / fraction : 0;
    return own + (done_ > 0 ? (all - here) / done_ * (total_ - done_ - 1) : 0);
  }
  double estimate_s() const {  // between two experiments
    return done_ > 0 ? seconds_since(began_) / done_ * (total_ - done_) : 0;
  }

 private:
  int total_;
  double timeout_s_;
  int done_                            = 0;
  Steady::time_point began_            = Steady::now();
  Steady::time_point experiment_began_ = began_;
};

void run_experiment(const ExperimentInfo& experiment, const MeasureOptions& options, const RunClock& clock,
                    const std::function<void(const PhaseBoard::Phase&)>& on_tick, ExperimentRecord& record) {
  if (clock.suite_timeout()) {
    record.status = Outcome::timeout;
    record.detail = "suite timeout reached before its turn (--suite-timeout)";
    return;
  }
  if (options.run.aa &&
      (experiment.shape == Shape::ranked || runs_in_process_rounds(experiment, options.run))) {
    record.status = Outcome::skipped;
    record.detail = "ranks, and processes of their own, have no A/A comparison";
    return;
  }
  if (runs_in_process_rounds(experiment, options.run))
    run_process_rounds(experiment, options, record, on_tick);
  else
    run_children(experiment, options, {.on_tick = on_tick, .suite_seconds_left = clock.suite_seconds_left()},
                 record);
  if (record.status == Outcome::ok) record.status = worst_of(record);
}

}  // namespace

bool needs_cpu_ceilings(const RunOptions& options) {
  if (options.check_only) return false;
  return std::any_of(options.targets.begin(), options.targets.end(), [](const Selection& target) {
    const ExperimentInfo* experiment = find_experiment(target.experiment);
    return experiment && experiment->backend == Backend::cpu;
  });
}

std::string machine_of(const RunOptions& options) {
  const bool gpu_only =
      !options.targets.empty() &&
      std::all_of(options.targets.begin(), options.targets.end(), [](const Selection& target) {
        const ExperimentInfo* experiment = find_experiment(target.experiment);
        return experiment && experiment->backend == Backend::cuda;
      });
  return gpu_only ? machine::gpu_machine_id(options.device) : machine::machine_id();
}

void run_experiments(const RunOptions& options, const ProgressSink& sink) {
  FATHOM_EXPECT(options.seed != 0, "a run needs a seed");
  const int total           = static_cast<int>(options.targets.size());
  const std::string machine = machine_of(options);
  RunClock clock(total, options.suite_timeout_s);
  for (const Selection& target : options.targets) {
    const ExperimentInfo* experiment = find_experiment(target.experiment);
    FATHOM_EXPECT(experiment != nullptr, "no experiment " + target.experiment);
    ExperimentRecord record{.id          = experiment->id,
                            .question    = experiment->question,
                            .backend     = std::string(to_string(experiment->backend)),
                            .source_hash = std::string(source_hash(experiment->folder)),
                            .catalog     = experiment->catalog,
                            .group       = experiment->group};
    clock.begin_experiment();
    const auto on_tick = [&](const PhaseBoard::Phase& phase) {
      sink({.experiment   = record.id,
            .variant      = phase.variant,
            .phase        = phase.phase,
            .done         = clock.done(),
            .total        = total,
            .seconds_left = clock.estimate_s(phase.fraction)});
    };
    run_experiment(*experiment, {.variants = target.variants, .run = options}, clock, on_tick, record);
    bind_counters(machine, record);
    record.seconds = clock.experiment_s();
    clock.end_experiment();
    sink({.experiment   = record.id,
          .variant      = {},
          .phase        = "finished",
          .done         = clock.done(),
          .total        = total,
          .seconds_left = clock.estimate_s(),
          .finished     = &record});
  }
}

}  // namespace fathom::lab
