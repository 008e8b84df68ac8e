#include "cli/measuring.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/manifest.h"
#include "cli/progress.h"
#include "cli/run_folder.h"
#include "cli/usage.h"
#include "machine/ceilings.h"
#include "machine/identity.h"
#include "profile/profiler.h"

namespace fathom::cli {
namespace {

// Other words of the same size than the clock's own count would have no meaning to a person who types them in
// again.
uint64_t seed_from_clock() {
  return static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count() / 1000 %
                               1000000000);
}

lab::ExperimentRecord skipped(const lab::Planned& planned) {
  lab::ExperimentRecord record;
  record.id     = planned.label;
  record.status = lab::Outcome::skipped;
  record.skip   = planned.skip;
  record.detail = planned.detail;
  return record;
}

}  // namespace

std::vector<std::string>& program_arguments() {
  static std::vector<std::string> arguments;
  return arguments;
}

void add_measuring_flags(CLI::App& verb, MeasuringFlags& flags) {
  lab::RunOptions& options = flags.options;
  add_selection_flags(verb, flags.selection);
  verb.add_option("--timeout-multiplier", options.timeout_multiplier,
                  "Of the 60 s one call or stage may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb.add_option("--suite-timeout", options.suite_timeout_s, "Seconds for everything; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--memory-limit", flags.memory_limit,
                  "Of one experiment's process, e.g. 4G (default: 90 % of what is free)");
  verb.add_option("--seed", options.seed, "Of inputs and orders; 0: from the clock")->capture_default_str();
}

lab::RunRecord measure(const MeasuringFlags& flags, const lab::Targets& targets, const std::string& label,
                       const std::vector<std::string>& argv,
                       const std::function<void(const lab::RunRecord&)>& after_each) {
  lab::RunOptions options = flags.options;
  options.targets         = targets.selections;
  options.axes            = targets.axes;
  if (options.seed == 0) options.seed = seed_from_clock();
  if (!flags.memory_limit.empty()) {
    const lab::Value bytes = lab::parse_value(flags.memory_limit);
    if (!std::holds_alternative<int64_t>(bytes) || std::get<int64_t>(bytes) <= 0)
      throw UsageError("--memory-limit takes a size such as 500M or 4G, not '" + flags.memory_limit + "'");
    options.memory_limit_bytes = std::get<int64_t>(bytes);
  }

  lab::RunRecord growing;
  growing.label    = label;
  growing.started  = utc_now();
  growing.machine  = lab::machine_of(options);
  growing.manifest = manifest(argv, options, growing.started).dump();
  for (const lab::Planned& planned : targets.planned) growing.experiments.push_back(skipped(planned));
  if (!growing.experiments.empty()) after_each(growing);

  // Before the first experiment: inside one, measuring the machine would count against the variant whose turn
  // it is.
  if (lab::needs_cpu_ceilings(options)) machine::ceilings();

  ProgressDisplay display(stderr, terminal_columns(STDERR_FILENO));
  if (!options.targets.empty())
    lab::run(options, [&](const lab::Progress& progress) {
      display.show(progress);
      if (!progress.finished) return;
      growing.experiments.push_back(*progress.finished);
      after_each(growing);
    });
  return growing;
}

std::unique_ptr<lab::Profiler> profiler_for(const std::string& set, const std::string& folder) {
  const auto known = profile::parse_metric_set(set);
  if (!known) throw UsageError(known.error().message);
  return profile::make_profiler({.set = *known, .folder = folder});
}

}  // namespace fathom::cli
