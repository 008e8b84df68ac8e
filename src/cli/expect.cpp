// fathom expect check|update|diff: runs against the committed records of a machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/compare_table.h"
#include "cli/expectations.h"
#include "cli/output_flags.h"
#include "cli/run_folder.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"

namespace fathom::cli {
namespace {

struct ExpectFlags {
  std::string run, artifacts = "artifacts", filter;
  ExpectationFlags expectations;
  OutputFlags outputs;
};

void print_all(std::string_view head, const std::vector<std::string>& items) {
  if (!items.empty()) fmt::print("{}: {}\n", head, fmt::join(items, ", "));
}

// Provenance of the numbers on the A side.
void print_provenance(const ExpectFlags& flags, const lab::RunRecord& run) {
  const std::string& folder = flags.expectations.results;
  const auto records = lab::read_expectations(folder.empty() ? default_results() : folder, run.machine);
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
  add_part(verb, *flags, "update", "Write the run's results as what is expected")
      .callback([flags, &exit_code] { exit_code = update(*flags); });
}

}  // namespace fathom::cli
