// fathom run: measures, compares, keeps everything, and says what it amounts to.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/expectations.h"
#include "cli/listing.h"
#include "cli/measuring.h"
#include "cli/output.h"
#include "cli/result_table.h"
#include "cli/run_folder.h"
#include "cli/usage.h"
#include "cli/verbs.h"
#include "lab/history.h"

namespace fathom::cli {
namespace {

struct RunFlags {
  MeasuringFlags measuring;
  OutputFlags outputs;
  ExpectationFlags expectations;
  std::string artifacts = "artifacts", label, metric_set = "minimal";
  bool list = false, record = false, accept_regressions = false, profile = false;
};

// "ch07" for one target, "all" for none, "quick" where that is all that was said.
std::string label_of(const RunFlags& flags) {
  if (!flags.label.empty()) return flags.label;
  std::vector<std::string> names = words(flags.measuring.selection.names);
  for (const std::string& name : words(flags.measuring.selection.targets)) names.push_back(name);
  if (names.size() == 1) return names.front();
  if (names.size() > 1) return fmt::format("{}_and_{}_more", names.front(), names.size() - 1);
  return flags.measuring.options.quick ? "quick" : "all";
}

void remember(const lab::RunRecord& run) {
  if (const Status status = lab::append_history(lab::history_path(), run); !status)
    fmt::print(stderr, "fathom run: this run is not in the history: {}\n", status.error().message);
}

// 1 for a missed expectation; the rest is the record's.
int judge(const RunFlags& flags, const lab::RunRecord& run) {
  const int code = lab::exit_code(run);
  // Another kind of measurement than the recorded ones compares with nothing.
  if (flags.measuring.options.cold_start || flags.measuring.options.aa) return code;
  if (flags.record || flags.accept_regressions) {
    write_expectations(flags.expectations, run);
    return code;
  }
  const bool missed = report_expectations(flags.expectations, run);
  // A quick run is shown beside the records, but its one point and few rounds accuse nobody.
  return missed && code == 0 && !flags.measuring.options.quick ? 1 : code;
}

int run(const RunFlags& flags) {
  const lab::Targets targets = selected(flags.measuring.selection);
  if (flags.list) {
    fmt::print("{}", listing_text(targets));
    return 0;
  }
  const std::string label  = label_of(flags);
  const std::string folder = make_run_folder(flags.artifacts, utc_now(), label);
  MeasuringFlags measuring = flags.measuring;
  if (flags.profile) {
    measuring.options.profile_set = flags.metric_set;
    measuring.options.folder      = folder;
  }
  const lab::RunRecord record =
      measure(measuring, targets, label, program_arguments(),
              [&](const lab::RunRecord& growing) { write_results(folder, growing); });
  write_run(flags.artifacts, folder, record);
  if (!flags.measuring.options.cold_start && !flags.measuring.options.aa) remember(record);

  const bool stdout_taken =
      write_outputs(flags.outputs, {[&] { return to_json(record); }, [&] { return result_values(record); },
                                    [&] { return result_table(record); }});
  if (!stdout_taken) fmt::print("{}\n{}\n", to_text(result_table(record)), tally_text(record));
  fmt::print(stderr, "report: {}/report.html\n", folder);
  return judge(flags, record);
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<RunFlags>();
  CLI::App& verb = *app.add_subcommand("run", "Measure experiments and compare their variants");
  auto& options  = flags->measuring.options;
  add_measuring_flags(verb, flags->measuring);
  verb.add_flag("-l,--list", flags->list, "Only show what would run");
  verb.add_flag("--quick", options.quick, "One point, at most 40 rounds and 3 s an experiment");
  verb.add_flag("--cold-start", options.cold_start, "Every sample in a fresh process, without warm-up");
  verb.add_option("--iterations", options.iterations, "Calls a sample (default: calibrated)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--warmup", options.warmup, "Calls before the first round (default: until steady)")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--repeat", options.repeat, "At most so many rounds (default: 400)")
      ->check(CLI::PositiveNumber);
  verb.add_flag("--aa", options.aa,
                "Measure the method: the baseline against itself, and against itself plus 5 % of work");
  verb.add_option("--label", flags->label, "Name of the run (default: of its targets)");
  add_artifacts_flag(verb, flags->artifacts);
  verb.add_flag("--profile", flags->profile,
                "Look at one call of each GPU variant in an untimed pass: timeline, kernels, counters");
  verb.add_option("--ncu-metric-set", flags->metric_set, "Counters of --profile")
      ->check(CLI::IsMember({"minimal", "roofline", "deep_dive"}))
      ->capture_default_str();
  add_expectation_flags(verb, flags->expectations);
  verb.add_flag("--record", flags->record, "Write the results as what this machine is expected to do");
  verb.add_flag("--accept-regressions", flags->accept_regressions,
                "The same, instead of failing on what became slower");
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace fathom::cli
