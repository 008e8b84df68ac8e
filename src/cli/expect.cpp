// fathom expect check|update|diff|trend: runs against the committed records of a machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/compare_table.h"
#include "cli/expectations.h"
#include "cli/output_flags.h"
#include "cli/run_folder.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "lab/expectation_trend.h"
#include "lab/metric_text.h"
#include "lab/quantity.h"

namespace fathom::cli {
namespace {

struct ExpectFlags {
  std::string run, artifacts = "artifacts", filter;
  std::vector<std::string> runs;  // of `trend`
  ExpectationFlags expectations;
  OutputFlags outputs;
};

void print_all(std::string_view head, const std::vector<std::string>& items) {
  if (!items.empty()) fmt::print("{}: {}\n", head, fmt::join(items, ", "));
}

// Provenance of the numbers on the A side.
void print_provenance(const ExpectFlags& flags, const lab::RunRecord& run) {
  const std::string& folder = flags.expectations.results;
  const auto records        = lab::read_expectations(results_folder(folder), run.machine);
  if (!records) throw UsageError(records.error().message);
  Table table{.columns = {{"record"}, {"written by"}, {"at"}, {"from run"}, {"commit"}, {"sources"}},
              .rows    = {}};
  for (const lab::Expectation& record : *records) {
    const auto& [by, at, from, commit] = record.provenance;
    table.rows.push_back(
        {record.experiment, by, at, from, commit, record.record.experiments.front().source_hash});
  }
  fmt::print("{}\n", to_text(table));
}

int compare_with_records(const ExpectFlags& flags, bool everything) {
  const FoundRun found              = find_run(flags.run, flags.artifacts);
  const lab::ExpectationCheck check = check_expectations(flags.expectations, found.run, flags.filter);
  lab::Comparison shown             = check.comparison;
  if (!everything) std::erase_if(shown.variants, [](const auto& row) { return !row.regressed(); });
  const Display display = everything ? Display::explain : Display::intervals;
  const int code        = check.missed() ? kExitRegression : kExitOk;
  if (write_outputs(flags.outputs, {[&] { return to_json(check); }, [&] { return compare_values(shown); },
                                    [&] { return compare_table(shown, display); }}))
    return code;
  if (everything) print_provenance(flags, found.run);
  fmt::print("A: expected of {}\nB: {}\n\n{}", found.run.machine, found.path,
             to_text(compare_table(shown, display)));
  if (!shown.variants.empty()) fmt::print("\n");
  print_all("stale (sources changed since the record)", check.stale);
  print_all("without a record", check.unexpected);
  print_all("not in this run", check.not_run);
  fmt::print("{}; {}\n", compare_summary(check.comparison),
             code == kExitOk ? "nothing missed" : "expectations MISSED");
  return code;
}

int update(const ExpectFlags& flags) {
  const FoundRun found = find_run(flags.run, flags.artifacts);
  return write_expectations(flags.expectations, found.run) > 0 ? kExitOk : lab::exit_code(found.run);
}

// Those that were named, or all under --artifacts-dir, oldest first; of the newest one's machine.
std::vector<lab::RunRecord> runs_of(const ExpectFlags& flags) {
  std::vector<lab::RunRecord> runs;
  for (const std::string& path : flags.runs.empty() ? run_folders(flags.artifacts) : flags.runs)
    runs.push_back(find_run(path, flags.artifacts).run);
  if (runs.empty())
    throw UsageError(
        fmt::format("there is no run under {}/; make one with `fathom run`, or name some", flags.artifacts));
  std::stable_sort(runs.begin(), runs.end(),
                   [](const auto& a, const auto& b) { return a.started < b.started; });
  const std::string machine = runs.back().machine;
  const auto others = std::erase_if(runs, [&](const lab::RunRecord& run) { return run.machine != machine; });
  if (others > 0) fmt::print(stderr, "{} runs of other machines than {} are left out\n", others, machine);
  return runs;
}

std::string percent(const std::optional<double>& share, const char* format) {
  return share ? fmt::format(fmt::runtime(format), 100 * *share) : std::string(lab::kAbsent);
}

// `number`: how a metric's value is written, by its name.
Table trend_table(const lab::Trends& trends, double margin,
                  const std::function<std::string(const std::string&, double)>& number) {
  Table table{.columns = {{"result", false, false, true},
                          {"metric"},
                          {"better"},
                          {"expected", true},
                          {"median", true},
                          {"newest", true},
                          {"change", true},
                          {"spread", true},
                          {"worse", true}},
              .rows    = {}};
  for (const lab::Trend& trend : trends.all) {
    const auto text = [&](const std::optional<double>& value) {
      return value ? number(trend.metric, *value) : std::string(lab::kAbsent);
    };
    table.rows.push_back(
        {trend.result, trend.metric, trend.better, text(trend.expected) + (trend.stale ? " (stale)" : ""),
         text(trend.median()), text(trend.newest()), percent(trend.change(), "{:+.1f} %"),
         percent(trend.spread(), "{:.1f} %"), fmt::format("{} of {}", trend.worse(margin), trend.runs())});
  }
  return table;
}

int trend(const ExpectFlags& flags) {
  const std::vector<lab::RunRecord> runs = runs_of(flags);
  const std::string& folder              = flags.expectations.results;
  const auto expected = lab::read_expectations(results_folder(folder), runs.back().machine);
  if (!expected) throw UsageError(expected.error().message);
  const auto trends = lab::trends_of(runs, *expected, flags.filter);
  if (!trends) throw UsageError(trends.error().message);
  const double margin = flags.expectations.margin_percent / 100;
  const auto plain    = [&] {
    return trend_table(*trends, margin,
                          [](const std::string&, double v) { return fmt::format("{:.6g}", v); });
  };
  const auto shown = [&] { return trend_table(*trends, margin, lab::metric_value_text); };
  if (write_outputs(flags.outputs, {[&] { return to_json(*trends, margin); }, plain, shown})) return kExitOk;
  fmt::print("{} runs of {}, {} to {}\n\n{}", runs.size(), trends->machine, trends->started.front(),
             trends->started.back(), to_text(shown()));
  return kExitOk;
}

CLI::App& add_part(CLI::App& verb, ExpectFlags& flags, const char* name, const char* what) {
  CLI::App& part = *verb.add_subcommand(name, what);
  part.add_option("run", flags.run, "A run: its folder or results.json (default: the newest)");
  add_artifacts_flag(part, flags.artifacts);
  add_expectation_flags(part, flags.expectations);
  return part;
}

}  // namespace

void add_expect(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<ExpectFlags>();
  CLI::App& verb = *app.add_subcommand("expect", "Check a run against the recorded results of this machine");
  verb.require_subcommand(1);
  CLI::App& check =
      add_part(verb, *flags, "check", "Show what is slower than recorded; exit 1 if anything is");
  CLI::App& diff = add_part(verb, *flags, "diff", "Show every result beside its record, and who wrote that");
  for (CLI::App* part : {&check, &diff}) {
    part->add_option("-f,--filter", flags->filter, "Only results whose id matches this REGEX");
    add_output_flags(*part, flags->outputs);
  }
  check.callback([flags, &exit_code] { exit_code = compare_with_records(*flags, false); });
  diff.callback([flags, &exit_code] { exit_code = compare_with_records(*flags, true); });
  CLI::App& over =
      *verb.add_subcommand("trend", "Show every quantity over several runs, beside what is recorded");
  over.add_option("runs", flags->runs, "Runs: folders or results.json (default: all of --artifacts-dir)");
  over.add_option("-f,--filter", flags->filter,
                  "Only what matches this REGEX, e.g. \"ch17.* (tpot|hit_rate)\"");
  add_artifacts_flag(over, flags->artifacts);
  add_expectation_flags(over, flags->expectations);
  add_output_flags(over, flags->outputs);
  over.callback([flags, &exit_code] { exit_code = trend(*flags); });
  add_part(verb, *flags, "update", "Write the run's results as what is expected")
      .callback([flags, &exit_code] { exit_code = update(*flags); });
}

}  // namespace fathom::cli
