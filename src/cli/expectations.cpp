#include "cli/expectations.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/compare_table.h"
#include "cli/number_check.h"
#include "cli/run_folder.h"
#include "cli/usage_error.h"
#include "core/source_tree.h"
#include "core/utc_time.h"
#include "lab/source_hash.h"

namespace fathom::cli {
namespace {

std::string user_name() {
  for (const char* variable : {"USER", "LOGNAME"})
    if (const char* name = std::getenv(variable); name && *name) return name;
  const passwd* entry = getpwuid(getuid());
  return entry ? entry->pw_name : "unknown";
}

void print_list(std::string_view head, const std::vector<std::string>& items) {
  if (items.empty()) return;
  constexpr size_t kShown = 8;
  const auto end          = items.size() > kShown ? items.begin() + kShown : items.end();
  fmt::print(stderr, "{}: {}{}\n", head, fmt::join(items.begin(), end, ", "),
             items.size() > kShown ? fmt::format(" and {} more", items.size() - kShown) : "");
}

}  // namespace

std::string results_folder(const std::string& given) {
  if (!given.empty()) return given;
  const auto root = find_source_tree();
  return root && *root != "." ? *root + "/results" : "results";
}

std::string readers_results() {
  if (const char* data = std::getenv("XDG_DATA_HOME"); data && *data == '/')
    return std::string(data) + "/fathom/results";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::string(home) + "/.local/share/fathom/results";
  throw UsageError("nowhere to keep results for the book: set XDG_DATA_HOME or HOME");
}

void add_expectation_flags(CLI::App& verb, ExpectationFlags& flags) {
  verb.add_option("--results-dir", flags.results, "Where records of machines are kept (default: results)");
  verb.add_option("--by", flags.by, "Who writes a record (default: the user's name)");
  verb.add_option("--margin", flags.margin_percent,
                  "Equivalence margin in percent: smaller differences count as none")
      ->check(between(0, 100))
      ->capture_default_str();
}

lab::ExpectationCheck check_expectations(const ExpectationFlags& flags, const lab::RunRecord& run,
                                         const std::string& filter) {
  const std::string results = results_folder(flags.results);
  const auto expected       = lab::read_expectations(results, run.machine);
  if (!expected) throw UsageError(expected.error().message);
  auto check =
      lab::check_expectations(*expected, run, {.margin = flags.margin_percent / 100, .filter = filter});
  if (!check) throw UsageError(check.error().message);
  return std::move(*check);
}

void keep_stale(const ExpectationFlags& flags, const std::string& machine,
                std::vector<lab::Selection>& selections) {
  const auto records = lab::read_expectations(results_folder(flags.results), machine);
  if (!records) throw UsageError(records.error().message);
  for (const lab::Expectation& record : *records)
    if (!lab::is_stale(record))
      std::erase_if(selections, [&](const lab::Selection& selection) {
        return selection.experiment == record.experiment;
      });
}

bool report_expectations(const ExpectationFlags& flags, const lab::RunRecord& run) {
  const lab::ExpectationCheck check = check_expectations(flags, run);
  print_list("stale records (sources changed since)", check.stale);
  if (!check.missed()) return false;
  lab::Comparison misses;
  for (const lab::ComparedVariant& row : check.comparison.variants)
    if (row.regressed()) misses.variants.push_back(row);
  fmt::print(
      stderr,
      "missed expectations of {}:\n{}accept them with --accept-regressions, or see `fathom expect diff`\n",
      run.machine, to_text(compare_table(misses, Display::intervals)));
  return true;
}

int write_expectations(const ExpectationFlags& flags, const lab::RunRecord& run) {
  const std::string results = results_folder(flags.results);
  const std::string commit  = std::string(lab::build_commit()) + (lab::build_dirty() ? "+" : "");
  const lab::Written written =
      lab::update_expectations(results, run,
                               {.written_by = flags.by.empty() ? user_name() : flags.by,
                                .written_at = utc_now(),
                                .from_run   = run.label + " " + run.started,
                                .commit     = commit});
  for (const std::string& refused : written.refused) fmt::print(stderr, "not recorded: {}\n", refused);
  fmt::print(stderr, "{} records written under {}/{}\n", written.paths.size(), results, run.machine);
  return static_cast<int>(written.paths.size());
}

}  // namespace fathom::cli
