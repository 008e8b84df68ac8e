// fathom run: measures experiments, writes the run folder and compares with the expectations.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/aa_summary.h"
#include "cli/candidates.h"
#include "cli/counter_flags.h"
#include "cli/expectations.h"
#include "cli/experiment_list.h"
#include "cli/number_check.h"
#include "cli/output_flags.h"
#include "cli/result_table.h"
#include "cli/run_experiments.h"
#include "cli/run_folder.h"
#include "cli/run_summary.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "core/utc_time.h"
#include "lab/history.h"
#include "lab/run_experiments.h"

namespace fathom::cli {
namespace {

struct RunFlags {
  ExperimentFlags experiments;
  OutputFlags outputs;
  ExpectationFlags expectations;
  CounterFlags counters;
  CandidateFlags candidates;
  std::string artifacts = "artifacts", label;
  bool list = false, stale = false, record = false, book = false, accept_regressions = false;
};

// "ch07" for one target; "all" without targets, or "quick" with --quick.
std::string label_of(const RunFlags& flags) {
  if (!flags.label.empty()) return flags.label;
  std::vector<std::string> names = words(flags.experiments.selection.names);
  for (const std::string& name : words(flags.experiments.selection.targets)) names.push_back(name);
  if (names.size() == 1) return names.front();
  if (names.size() > 1) return fmt::format("{}_and_{}_more", names.front(), names.size() - 1);
  return flags.experiments.options.quick ? "quick" : "all";
}

void append_to_history(const lab::RunRecord& run) {
  if (const Status status = lab::append_history(lab::history_path(), run); !status)
    fmt::print(stderr, "fathom run: this run is not in the history: {}\n", status.error().message);
}

// The record's exit code, or kExitRegression for a missed expectation.
int exit_code_of(const RunFlags& flags, const lab::RunRecord& run) {
  const int code = run_exit_code(run);
  if (flags.experiments.options.aa) {
    if (flags.record)
      fmt::print(stderr, "written: {}\n", record_aa(results_folder(flags.expectations.results), run));
    // A quick run is too short to try the method: it only prints what it found.
    const bool failed = !flags.experiments.options.quick && !aa_summary(run).holds();
    return code == kExitOk && failed ? kExitRegression : code;
  }
  // Records hold no cold starts: there is nothing to compare with.
  if (flags.experiments.options.cold_start) return code;
  if (flags.book) {
    ExpectationFlags readers = flags.expectations;
    readers.results          = readers_results();
    write_expectations(readers, run);
  }
  if (flags.record || flags.accept_regressions) write_expectations(flags.expectations, run);
  if (flags.book || flags.record || flags.accept_regressions) return code;
  const bool missed = report_expectations(flags.expectations, run);
  // A quick run is shown beside the records, but one point and few rounds are too little for a regression.
  return missed && code == kExitOk && !flags.experiments.options.quick ? kExitRegression : code;
}

int run(const RunFlags& flags) {
  if (flags.experiments.options.aa && flags.experiments.options.quick && flags.record)
    throw UsageError("--aa --quick is too short for a record: leave out --quick or --record");
  if (!flags.candidates.files.empty() && (flags.record || flags.book || flags.accept_regressions))
    throw UsageError("--candidate keeps no record: a record is of sources in the tree (CONTRIBUTING.md)");
  if (flags.counters.query) {
    fmt::print("{}", to_text(counter_table(flags.counters)));
    return kExitOk;
  }
  lab::Targets targets = chosen_targets(flags.experiments.selection);
  if (flags.stale) {
    lab::RunOptions options   = flags.experiments.options;
    options.targets           = targets.selections;
    const std::string machine = lab::machine_of(options);
    keep_stale(flags.expectations, machine, targets.selections);
    targets.planned.clear();
    if (targets.selections.empty()) {
      fmt::print("Each chosen experiment has a record of {} from today's sources.\n", machine);
      return kExitOk;
    }
  }
  if (flags.list) {
    fmt::print("{}", experiment_list_text(targets));
    return kExitOk;
  }
  ExperimentFlags experiments = flags.experiments;
  choose_counters(flags.counters, experiments.options);
  const Candidates candidates(flags.candidates, targets, experiments.options);
  const std::string label  = label_of(flags);
  const std::string folder = make_run_folder(flags.artifacts, utc_now(), label);
  if (flags.counters.profile) experiments.options.folder = folder;
  candidates.write_sources(folder);
  const lab::RunRecord record =
      run_experiments(experiments, targets, label, program_arguments(),
                      [&](const lab::RunRecord& growing) { write_results(folder, growing); });

  write_run(flags.artifacts, folder, record, flags.expectations.results);
  if (!flags.experiments.options.cold_start && !flags.experiments.options.aa)
    append_to_history(candidates.without(record));

  const bool stdout_taken =
      write_outputs(flags.outputs, {[&] { return to_json(record); }, [&] { return result_values(record); },
                                    [&] { return result_table(record); }});
  if (!stdout_taken) {
    fmt::print("{}\n{}\n", result_text(record), tally_text(record));
    if (flags.experiments.options.aa)
      fmt::print("\n{}", aa_text(aa_summary(record)));
    else if (const std::string summary = run_summary(record); !summary.empty())
      fmt::print("\n{}\n", summary);
  }
  print_report_path(folder);
  return exit_code_of(flags, record);
}

}  // namespace

void add_run(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<RunFlags>();
  CLI::App& verb = *app.add_subcommand("run", "Measure experiments and compare their variants");
  auto& options  = flags->experiments.options;
  add_experiment_flags(verb, flags->experiments);
  verb.add_flag("-l,--list", flags->list, "Only show what would run");
  verb.add_flag("--quick", options.quick, "One point, at most 40 rounds and 3 s an experiment");
  verb.add_flag("--cold-start", options.cold_start, "Every sample in a fresh process, without warm-up");
  verb.add_option("--iterations,--calls-per-sample", options.iterations,
                  "Calls per sample (default: calibrated)")
      ->check(whole_at_least(1));
  verb.add_option("--warmup", options.warmup, "Calls before the first round (default: until steady)")
      ->check(whole_at_least(0));
  verb.add_option("--repeat,--max-rounds", options.repeat,
                  "Most rounds at a point (default: 400; with ranks 200, sessions 6, cold starts 24)")
      ->check(whole_at_least(1));
  verb.add_flag(
      "--aa", options.aa,
      "Measure the method, at one to three points of each experiment: the baseline against itself, and "
      "against itself "
      "plus 5 % of work; fails on a false verdict, or where less than 90 % of that work is found; with "
      "--record, results/<machine>/aa.json");
  verb.add_option("--label", flags->label, "Name of the run (default: of its targets)");
  add_artifacts_flag(verb, flags->artifacts);
  add_counter_flags(verb, flags->counters);
  add_candidate_flags(verb, flags->candidates);
  add_expectation_flags(verb, flags->expectations);
  verb.add_flag(
      "--stale", flags->stale,
      "Only experiments that have no record of this machine, or one from other sources than today's");
  verb.add_flag("--record", flags->record, "Save the results as this machine's reference record (results/)");
  verb.add_flag("--book", flags->book,
                "Keep the results for the book, which draws this machine first (`fathom book`)");
  verb.add_flag("--accept-regressions", flags->accept_regressions,
                "As --record, and do not fail on regressions");
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace fathom::cli
