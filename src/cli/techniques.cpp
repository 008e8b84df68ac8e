// fathom techniques: what of the catalog works, which techniques the experiments show, and where those were
// measured.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/expectations.h"
#include "cli/output_flags.h"
#include "cli/target_flags.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "lab/coverage.h"
#include "lab/registry.h"
#include "lab/source_hash.h"
#include "lab/target.h"

namespace fathom::cli {
namespace {

struct TechniquesFlags {
  std::vector<std::string> names;
  std::string results;
  OutputFlags outputs;
};

std::string joined(const auto& words) { return fmt::format("{}", fmt::join(words, " ")); }

Table coverage_values(const lab::Coverage& coverage) {
  Table table{
      .columns =
          {{"chapter"}, {"technique or row"}, {"status"}, {"shown by"}, {"measured on"}, {"what there is"}},
      .rows = {}};
  for (const lab::TechniqueCoverage& technique : coverage.techniques)
    table.rows.push_back({technique.chapter, technique.name, std::string(technique.status()),
                          joined(technique.shown.by), joined(technique.shown.machines), ""});
  for (const auto& [row, shown] : coverage.catalog)
    table.rows.push_back(
        {row.chapter, row.id, row.status, joined(shown.by), joined(shown.machines), row.where});
  return table;
}

// Rows that share a name, with their count by status. The names are in order of appearance.
class Counts {
 public:
  void add(const std::string& name, std::string_view status) {
    if (by_name_.try_emplace(name).second) names_.push_back(name);
    ++by_name_[name][std::string(status)];
    ++all_[std::string(status)];
  }
  Table table(const std::string& what, const std::vector<std::string>& statuses) const {
    Table table{.columns = {{what}, {"rows", true}}, .rows = {}};
    for (const std::string& status : statuses) table.columns.push_back({status, true});
    const auto row = [&](const std::string& name, const std::map<std::string, int>& counts) {
      std::vector<std::string> cells = {name, ""};
      int sum                        = 0;
      for (const std::string& status : statuses) {
        const auto found = counts.find(status);
        sum += found == counts.end() ? 0 : found->second;
        cells.push_back(found == counts.end() ? "" : std::to_string(found->second));
      }
      cells[1] = std::to_string(sum);
      table.rows.push_back(std::move(cells));
    };
    for (const std::string& name : names_) row(name, by_name_.at(name));
    row("all", all_);
    return table;
  }

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::map<std::string, int>> by_name_;
  std::map<std::string, int> all_;
};

// "97 of 97 records are stale: ...": what was measured may no longer be what is there.
std::string stale_text(const std::vector<lab::Expectation>& records) {
  const auto stale = std::count_if(records.begin(), records.end(), lab::is_stale);
  return fmt::format("{} of {} records are stale: the sources changed since they were measured.", stale,
                     records.size());
}

std::string overview(const lab::Coverage& coverage, const std::vector<lab::Expectation>& records) {
  Counts techniques, catalog;
  for (const lab::TechniqueCoverage& technique : coverage.techniques)
    techniques.add(technique.chapter, technique.status());
  for (const auto& [row, shown] : coverage.catalog) catalog.add(row.area(), row.status);
  return "Techniques by chapter; declared: an experiment shows it, no record has timed it yet\n\n" +
         to_text(techniques.table("chapter", {"measured", "declared", "not built"})) + "\n" +
         wrapped(stale_text(records)) +
         "\nThe catalog by area: what works is proved by an experiment or a test that the row names\n\n" +
         to_text(catalog.table("area", {"works", "partial", "none"})) + "\n" +
         wrapped(
             "`fathom techniques ch09` shows the techniques of a chapter; `fathom techniques quant` or "
             "`quant-001` what there "
             "is of an area or a row, and what is missing.");
}

// The rows in full: what is asked for and what there is.
std::string details(const lab::Coverage& coverage) {
  Table table{
      .columns = {{"chapter", false, false}, {"technique"}, {"status"}, {"shown by"}, {"measured on"}},
      .rows    = {}};
  for (const lab::TechniqueCoverage& technique : coverage.techniques)
    table.rows.push_back({technique.chapter, technique.name, std::string(technique.status()),
                          joined(technique.shown.by), joined(technique.shown.machines)});
  std::string text = to_text(table);
  for (const auto& [row, shown] : coverage.catalog) {
    text += fmt::format("{}{}  {}  {}\n", text.empty() ? "" : "\n", row.id, row.status, row.name) +
            wrapped(row.what, text_columns(), "    needed:   ") +
            wrapped(row.where, text_columns(), "    status:   ");
    if (!shown.by.empty())
      text += wrapped(joined(shown.by) + (shown.machines.empty() ? ", no record"
                                                                 : ", measured on " + joined(shown.machines)),
                      text_columns(), "    shown by: ");
  }
  return text;
}

// Keeps what the names ask for: a chapter's techniques, a technique, an area of the catalog, a row.
void keep_named(lab::Coverage& coverage, const std::vector<std::string>& names) {
  std::set<std::string> known, wanted(names.begin(), names.end());
  for (const lab::TechniqueCoverage& technique : coverage.techniques)
    known.insert({technique.name, technique.chapter});
  for (const auto& [row, shown] : coverage.catalog) known.insert({row.id, row.area()});
  for (const std::string& name : wanted)
    if (known.count(name) == 0) {
      const std::string near = lab::nearest(name, {known.begin(), known.end()});
      throw UsageError(fmt::format(
          "'{}' is no chapter, technique, area or row{}; `fathom techniques` shows chapters and areas", name,
          near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
  std::erase_if(coverage.techniques, [&](const auto& technique) {
    return wanted.count(technique.name) == 0 && wanted.count(technique.chapter) == 0;
  });
  std::erase_if(coverage.catalog, [&](const auto& entry) {
    return wanted.count(entry.row.id) == 0 && wanted.count(entry.row.area()) == 0;
  });
}

int techniques(const TechniquesFlags& flags) {
  const auto chapters = lab::parse_chapters(lab::chapters_toml());
  if (!chapters) throw UsageError(chapters.error().message);
  const auto catalog = lab::parse_catalog(lab::catalog_csv());
  if (!catalog) throw UsageError(catalog.error().message);
  const auto records = lab::read_expectations(results_folder(flags.results), "");
  if (!records) throw UsageError(records.error().message);
  lab::Coverage coverage = lab::coverage_of(*chapters, *catalog, lab::experiments(), *records);
  const bool all         = flags.names.empty();
  if (!all) keep_named(coverage, words(flags.names));
  const auto table = [&] { return coverage_values(coverage); };
  if (!write_outputs(flags.outputs, {[&] { return to_json(coverage); }, table, table}))
    fmt::print("{}", all ? overview(coverage, *records) : details(coverage));
  for (const std::string& unknown : coverage.unknown) fmt::print(stderr, "fathom techniques: {}\n", unknown);
  return kExitOk;
}

}  // namespace

void add_techniques(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<TechniquesFlags>();
  CLI::App& verb = *app.add_subcommand(
      "techniques", "Count what of the catalog works, and show which experiments prove it");
  verb.add_option(
      "name", flags->names,
      "What to show in full: a chapter (ch09), a technique, an area (quant) or a row (quant-001)");
  verb.add_option("--results-dir", flags->results, "Where records of machines are kept (default: results)");
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = techniques(*flags); });
}

}  // namespace fathom::cli
