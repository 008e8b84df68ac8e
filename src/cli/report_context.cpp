#include "cli/report_context.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/diagnosed_results.h"
#include "cli/expectations.h"
#include "cli/machine_roofs.h"
#include "cli/variant_source.h"
#include "core/source_tree.h"
#include "lab/registry.h"
#include "lab/source_hash.h"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  if (std::ifstream in(path); in) text << in.rdbuf();
  return text.str();
}

std::map<std::string, std::string> diagnoses_of(const lab::RunRecord& run, const std::string& results) {
  std::map<std::string, std::string> diagnoses;
  for (const DiagnosedResult& result : diagnosed_results(run, recorded_experiments(results, run.machine)))
    diagnoses[result.id] = diagnose::sentence(result.diagnosis);
  return diagnoses;
}

}  // namespace

report::ExperimentText experiment_text(const std::string& root, const lab::ExperimentInfo& experiment) {
  report::ExperimentText text;
  text.notes = text_of(fs::path(root) / experiment.folder / "notes.md");
  for (const lab::VariantInfo& variant : experiment.variants) {
    const auto file = variant_source(root, experiment, variant.id);
    if (!file) continue;
    text.variants.push_back({.id    = variant.id,
                             .file  = fs::path(*file).lexically_relative(fs::path(root).lexically_normal()),
                             .text  = text_of(*file),
                             .is_op = !variant.op.empty()});
  }
  return text;
}

std::optional<report::Reference> reference_of(const lab::RunRecord& run, const std::string& results) {
  const auto records = lab::read_expectations(results, run.machine);
  if (!records) fmt::print(stderr, "the report compares with no record: {}\n", records.error().message);
  if (!records || records->empty()) return std::nullopt;
  auto check = lab::check_expectations(*records, run);
  if (!check) return std::nullopt;
  report::Reference reference{.folder     = (fs::path(results) / run.machine).lexically_normal(),
                              .records    = {},
                              .comparison = std::move(check->comparison)};
  for (const lab::Expectation& record : *records) reference.records[record.experiment] = record.provenance;
  return reference;
}

report::ReportContext report_context(const lab::RunRecord& run, const std::string& given) {
  const std::string results = results_folder(given);
  report::ReportContext context{.roofs      = known_roofs(run.machine),
                                .source_now = {},
                                .texts      = {},
                                .reference  = reference_of(run, results),
                                .diagnoses  = diagnoses_of(run, results)};
  const auto root = find_source_tree();
  if (root) context.texts.emplace();
  for (const lab::ExperimentInfo& experiment : lab::experiments()) {
    context.source_now[experiment.id] = lab::source_hash(experiment.folder);
    if (root) (*context.texts)[experiment.id] = experiment_text(*root, experiment);
  }
  return context;
}

}  // namespace fathom::cli
