// fathom techniques: the coverage matrix: each technique or catalog row, its experiments, and where they were
// measured.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/expectations.h"
#include "cli/output_flags.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "lab/coverage.h"
#include "lab/registry.h"
#include "lab/source_hash.h"

namespace fathom::cli {
namespace {

struct TechniquesFlags {
  std::string results;
  OutputFlags outputs;
};

Table coverage_table(const lab::Coverage& coverage) {
  Table table{
      .columns = {{"chapter", false, false}, {"technique or row"}, {"status"}, {"shown by"}, {"measured on"}},
      .rows    = {}};
  const auto add = [&](const lab::CoverageRow& row, const std::string& chapter) {
    table.rows.push_back({chapter, row.name, std::string(row.status()),
                          fmt::format("{}", fmt::join(row.variants, " ")),
                          fmt::format("{}", fmt::join(row.machines, " "))});
  };
  for (const lab::CoverageRow& row : coverage.techniques) add(row, row.chapter);
  for (const lab::CoverageRow& row : coverage.catalog) add(row, "catalog");
  return table;
}

std::string totals(std::string_view what, const std::vector<lab::CoverageRow>& rows) {
  int measured = 0, declared = 0;
  for (const lab::CoverageRow& row : rows) {
    measured += row.status() == "measured";
    declared += row.status() == "declared";
  }
  return fmt::format("{}: {} measured, {} declared, {} planned, of {}", what, measured, declared,
                     static_cast<int>(rows.size()) - measured - declared, rows.size());
}

int techniques(const TechniquesFlags& flags) {
  const auto chapters = lab::parse_chapters(lab::chapters_toml());
  if (!chapters) throw UsageError(chapters.error().message);
  const auto records = lab::read_expectations(flags.results.empty() ? default_results() : flags.results, "");
  if (!records) throw UsageError(records.error().message);
  const lab::Coverage coverage = lab::coverage_of(*chapters, lab::experiments(), *records);
  const auto table             = [&] { return coverage_table(coverage); };
  if (!write_outputs(flags.outputs, {[&] { return to_json(coverage); }, table, table}))
    fmt::print("{}\n{}\n{}\n", to_text(table()), totals("techniques", coverage.techniques),
               totals("catalog rows", coverage.catalog));
  for (const std::string& unknown : coverage.unknown) fmt::print(stderr, "fathom techniques: {}\n", unknown);
  return kExitOk;
}

}  // namespace

void add_techniques(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TechniquesFlags>();
  CLI::App& verb =
      *app.add_subcommand("techniques", "Show which experiments cover which techniques, and where measured");
  verb.add_option("--results-dir", flags->results, "Where records of machines are kept (default: results)");
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = techniques(*flags); });
}

}  // namespace fathom::cli
