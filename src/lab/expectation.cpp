#include "lab/expectation.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/expect.h"
#include "lab/json_text.h"
#include "lab/registry.h"
#include "lab/source_hash.h"

namespace fathom::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMaxFileBytes = 64 * 1024;  // four points of some 25 variants take 43 KB

// The part of a run's manifest that a reader of the repository needs; the whole stays with the artifacts.
json short_manifest(const std::string& manifest) {
  const json whole = json::parse(manifest, nullptr, false);
  json brief       = json::object();
  if (!whole.is_object()) return brief;
  for (const char* name : {"commit", "dirty", "compiler", "flags", "seed", "machine"})
    if (const auto found = whole.find(name); found != whole.end()) brief[name] = *found;
  if (const auto options = whole.find("options");
      options != whole.end() && options->is_object() && options->value("quick", false))
    brief["quick"] = true;  // one point and few rounds: a reader has to know
  return brief;
}

// Only variants that were measured and right are recorded. A library that is wrong says nothing against ours:
// the record keeps its status, and the experiment's own is ok.
std::string why_refused(const ExperimentRecord& experiment) {
  bool timed = false, library_wrong = false;
  for (const PointRecord& point : experiment.points)
    for (const VariantRecord& variant : point.variants) {
      if (variant.kind == "library" && variant.status == Outcome::wrong) {
        library_wrong = true;
        continue;
      }
      if (variant.status != Outcome::ok && variant.status != Outcome::skipped)
        return fmt::format("{} is {}", variant.id, to_string(variant.status));
      if (variant.verdict == "INVALID") return fmt::format("the measurement of {} is invalid", variant.id);
      timed |= variant.time_ns.has_value();
    }
  const bool explained = experiment.status == Outcome::wrong && library_wrong;
  if (experiment.status != Outcome::ok && experiment.status != Outcome::skipped && !explained)
    return std::string(to_string(experiment.status));
  return timed ? "" : "nothing was timed";
}

}  // namespace

std::string expectation_path(const std::string& results, const std::string& machine,
                             const std::string& experiment) {
  return fmt::format("{}/{}/{}.json", results, machine, experiment);
}

Result<Expectation> read_expectation(const std::string& path) {
  auto record = read_run(path);
  if (!record) return record.error();
  if (record->experiments.size() != 1)
    return Error{fmt::format("{} holds {} experiments; a record under results/ holds one", path,
                             record->experiments.size())};
  Expectation expectation{.path       = path,
                          .experiment = record->experiments.front().id,
                          .provenance = {},
                          .record     = std::move(*record)};
  std::ifstream in(path);
  const json file = json::parse(in, nullptr, false);
  if (const auto found = file.find("provenance"); found != file.end() && found->is_object()) {
    const auto text = [&](const char* name) {
      const auto value = found->find(name);
      return value != found->end() && value->is_string() ? value->get<std::string>() : std::string();
    };
    expectation.provenance = {text("written_by"), text("written_at"), text("from_run"), text("commit")};
  }
  return expectation;
}

Result<std::vector<Expectation>> read_expectations(const std::string& results, const std::string& machine) {
  std::vector<std::string> paths;
  std::error_code none;
  const fs::path folder = machine.empty() ? fs::path(results) : fs::path(results) / machine;
  for (fs::recursive_directory_iterator entry(folder, none), end; !none && entry != end;
       entry.increment(none))
    // Records are in the chapters' folders; other files are not records.
    if (entry->path().extension() == ".json" && entry.depth() >= (machine.empty() ? 2 : 1))
      paths.push_back(entry->path().string());
  std::sort(paths.begin(), paths.end());
  std::vector<Expectation> expectations;
  for (const std::string& path : paths) {
    auto expectation = read_expectation(path);
    if (!expectation) return expectation.error();
    expectations.push_back(std::move(*expectation));
  }
  return expectations;
}

Written update_expectations(const std::string& results, const RunRecord& run, const Provenance& by) {
  Written written;
  for (const ExperimentRecord& experiment : run.experiments) {
    if (const std::string why = why_refused(experiment); !why.empty()) {
      written.refused.push_back(fmt::format("{}: {}", experiment.id, why));
      continue;
    }
    ExperimentRecord summary = committed(experiment);
    if (summary.status == Outcome::wrong) summary.status = Outcome::ok;  // only a library is wrong
    RunRecord record{.label       = run.label,
                     .started     = run.started,
                     .machine     = run.machine,
                     .manifest    = short_manifest(run.manifest).dump(),
                     .experiments = {std::move(summary)}};
    json file              = to_json(record);
    file["provenance"]     = {{"written_by", by.written_by},
                              {"written_at", by.written_at},
                              {"from_run", by.from_run},
                              {"commit", by.commit}};
    const std::string text = record_text(file);
    if (text.size() > kMaxFileBytes) {
      written.refused.push_back(
          fmt::format("{}: its summary takes {} bytes, a record at most {}; time fewer points", experiment.id,
                      text.size(), kMaxFileBytes));
      continue;
    }
    const std::string path = expectation_path(results, run.machine, experiment.id);
    write_file_atomically(path, text);
    written.paths.push_back(path);
  }
  return written;
}

Result<ExpectationCheck> check_expectations(const std::vector<Expectation>& expected, const RunRecord& run,
                                            const CompareOptions& options) {
  std::map<std::string, const ExperimentRecord*> ran;
  for (const ExperimentRecord& experiment : run.experiments) ran[experiment.id] = &experiment;

  ExpectationCheck check{.comparison = {}, .unexpected = {}, .not_run = {}, .stale = {}};
  RunRecord all{
      .label = "expected", .started = {}, .machine = run.machine, .manifest = {}, .experiments = {}};
  for (const Expectation& expectation : expected) {
    const auto found = ran.find(expectation.experiment);
    if (found == ran.end()) {
      check.not_run.push_back(expectation.experiment);
      continue;
    }
    all.machine = expectation.record.machine;
    all.experiments.push_back(expectation.record.experiments.front());
    if (all.experiments.back().source_hash != found->second->source_hash)
      check.stale.push_back(expectation.experiment);
    ran.erase(found);
  }
  for (const auto& [id, experiment] : ran) check.unexpected.push_back(id);
  auto comparison = compare(all, run, options);
  if (!comparison) return comparison.error();
  check.comparison = std::move(*comparison);
  for (ComparedVariant& row : check.comparison.variants)
    if (std::find(check.stale.begin(), check.stale.end(), row.experiment) != check.stale.end()) {
      row.advisory = true;
      row.why      = "its sources changed since the record was written";
    }
  return check;
}

bool is_stale(const Expectation& expectation) {
  const ExperimentInfo* experiment = find_experiment(expectation.experiment);
  return !experiment || source_hash(experiment->folder) != expectation.record.experiments.front().source_hash;
}

nlohmann::json to_json(const ExpectationCheck& check) {
  return {{"schema", "fathom.expectation_check/1"},
          {"missed", check.missed()},
          {"unexpected", check.unexpected},
          {"not_run", check.not_run},
          {"stale", check.stale},
          {"comparison", to_json(check.comparison)}};
}

}  // namespace fathom::lab
