#include "cli/run_experiments.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cli/counter_flags.h"
#include "cli/ctrl_c.h"
#include "cli/manifest.h"
#include "cli/number_check.h"
#include "cli/progress.h"
#include "cli/run_folder.h"
#include "cli/usage_error.h"
#include "core/exit_code.h"
#include "core/utc_time.h"
#include "cuda/device_name.h"
#include "lab/run_experiments.h"
#include "machine/ceilings.h"
#include "machine/gpu.h"
#include "machine/machine_id.h"
#include "profile/profiler.h"

namespace fathom::cli {
namespace {

// At most nine digits, so that a person can type the seed in again.
uint64_t seed_from_clock() {
  return static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count() / 1000 %
                               1000000000);
}

struct Interrupted {};

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

void add_experiment_flags(CLI::App& verb, ExperimentFlags& flags) {
  lab::RunOptions& options = flags.options;
  add_target_flags(verb, flags.selection);
  verb.add_option("--timeout-multiplier", options.timeout_multiplier,
                  "Factor on the 60 s that one call or stage may take")
      ->check(above_zero())
      ->capture_default_str();
  verb.add_option("--suite-timeout", options.suite_timeout_s, "Seconds for everything; 0: no limit")
      ->check(at_least(0));
  verb.add_option("--memory-limit", flags.memory_limit,
                  "Memory limit of one experiment's process, e.g. 4G (default: 90 % of what is free)");
  verb.add_option_function<std::string>(
      "--device",
      [&options](const std::string& text) {
        if (text == "cpu") return;  // FATHOM_DEVICE=cpu, which is meant for the engine's verbs
        const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
        const auto device = parse_device_id(number ? "cuda:" + text : text);
        if (!device) throw UsageError("--device " + device.error().message);
        options.device = *device;
      },
      "The GPU of GPU experiments: N or cuda:N, of those that CUDA_VISIBLE_DEVICES shows (default: 0)");
  verb.add_option("--seed", options.seed, "Seed of inputs and orders; 0: from the clock")
      ->capture_default_str();
}

lab::RunRecord run_experiments(const ExperimentFlags& flags, const lab::Targets& targets,
                               const std::string& label, const std::vector<std::string>& argv,
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

  if (options.device != DeviceId{} && !machine::gpu(options.device))
    throw UsageError("--device " + machine::why_no_gpu(options.device));

  lab::RunRecord growing;
  growing.label    = label;
  growing.started  = utc_now();
  growing.machine  = lab::machine_of(options);
  growing.manifest = manifest(argv, options, growing.started).dump();
  for (const lab::Planned& planned : targets.planned) growing.experiments.push_back(skipped(planned));
  if (!growing.experiments.empty()) after_each(growing);

  // Measure the machine before the first experiment: later, its time would count against a variant's
  // deadline.
  if (lab::needs_cpu_ceilings(options)) machine::ceilings();

  ProgressDisplay display(stderr, terminal_columns(STDERR_FILENO));
  const CtrlC interruption;
  const auto sink = [&](const lab::Progress& progress) {
    if (CtrlC::pressed()) throw Interrupted();
    display.show(progress);
    if (!progress.finished) return;
    growing.experiments.push_back(*progress.finished);
    after_each(growing);
  };
  try {
    if (!options.targets.empty()) lab::run_experiments(options, sink);
  } catch (const Interrupted&) {
    display.clear();
    fmt::print(stderr, "interrupted after {} of {} experiments; those that had finished are kept\n",
               growing.experiments.size() - targets.planned.size(), options.targets.size());
  }
  return growing;
}

int run_exit_code(const lab::RunRecord& run) { return CtrlC::pressed() ? kExitCrash : lab::exit_code(run); }

std::unique_ptr<lab::Profiler> profiler_for(const lab::RunOptions& options) {
  profile::ProfilerOptions profiler{.counted = counter_choice(options), .folder = options.folder};
  profiler.kernels = value_or_usage_error(profile::KernelFilter::parse(options.profile_kernels));
  return profile::make_profiler(std::move(profiler));
}

}  // namespace fathom::cli
