#include "lab/coverage.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace fathom::lab {
namespace {

std::string chapter_name(int number) { return fmt::format("ch{:02}", number); }

// 0 for labs.
int chapter_number(const std::string& id) { return id.starts_with("ch") ? std::atoi(id.c_str() + 2) : 0; }

std::vector<std::string> strings(const toml::table& table, const char* name) {
  std::vector<std::string> out;
  if (const toml::array* list = table[name].as_array())
    for (const toml::node& item : *list)
      if (const auto text = item.value<std::string>()) out.push_back(*text);
  return out;
}

// Results that were timed on some machine: "ch07/transpose_cpu" and "ch07/transpose_cpu/tiled".
std::map<std::string, std::set<std::string>> timed_where(const std::vector<Expectation>& records) {
  std::map<std::string, std::set<std::string>> where;
  for (const Expectation& record : records)
    for (const ExperimentRecord& experiment : record.record.experiments)
      for (const PointRecord& point : experiment.points)
        for (const VariantRecord& variant : point.variants)
          if (variant.status == Outcome::ok && variant.time_ns) {
            where[experiment.id].insert(record.record.machine);
            where[experiment.id + "/" + variant.id].insert(record.record.machine);
          }
  return where;
}

nlohmann::json techniques_json(const std::vector<TechniqueCoverage>& techniques) {
  auto list = nlohmann::json::array();
  for (const TechniqueCoverage& technique : techniques)
    list.push_back({{"name", technique.name},
                    {"chapter", technique.chapter},
                    {"status", technique.status()},
                    {"shown_by", technique.shown.by},
                    {"measured_on", technique.shown.machines}});
  return list;
}

nlohmann::json catalog_json(const std::vector<CatalogCoverage>& catalog) {
  auto list = nlohmann::json::array();
  for (const auto& [row, shown] : catalog)
    list.push_back({{"id", row.id},
                    {"chapter", row.chapter},
                    {"name", row.name},
                    {"what", row.what},
                    {"status", row.status},
                    {"where", row.where},
                    {"shown_by", shown.by},
                    {"measured_on", shown.machines}});
  return list;
}

}  // namespace

std::string_view TechniqueCoverage::status() const {
  return !shown.machines.empty() ? "measured" : !shown.by.empty() ? "declared" : "not built";
}

Result<std::vector<Chapter>> parse_chapters(std::string_view text) {
  std::vector<Chapter> chapters;
  try {
    const toml::table file  = toml::parse(text, std::string_view("chapters.toml"));
    const toml::array* list = file["chapter"].as_array();
    if (!list) return Error{"chapters.toml has no [[chapter]]"};
    for (const toml::node& node : *list) {
      const toml::table* table = node.as_table();
      if (!table || !(*table)["number"].value<int>() || !(*table)["slug"].value<std::string>())
        return Error{"chapters.toml: a [[chapter]] lacks its number or slug"};
      chapters.push_back({.number     = *(*table)["number"].value<int>(),
                          .slug       = *(*table)["slug"].value<std::string>(),
                          .title      = (*table)["title"].value_or(std::string()),
                          .techniques = strings(*table, "techniques"),
                          .also       = strings(*table, "also")});
    }
  } catch (const toml::parse_error& error) {
    return Error{fmt::format("chapters.toml, line {}: {}", error.source().begin.line,
                             std::string(error.description()))};
  }
  return chapters;
}

Coverage coverage_of(const std::vector<Chapter>& chapters, const std::vector<CatalogRow>& catalog,
                     const std::vector<ExperimentInfo>& experiments,
                     const std::vector<Expectation>& records) {
  const auto where = timed_where(records);
  const auto add   = [&](Shown& shown, const std::string& id) {
    shown.by.push_back(id);
    if (const auto found = where.find(id); found != where.end())
      shown.machines.insert(found->second.begin(), found->second.end());
  };
  Coverage coverage;
  std::map<std::string, size_t> technique_of, row_of;
  for (const Chapter& chapter : chapters)
    for (const std::string& technique : chapter.techniques)
      if (technique_of.emplace(technique, coverage.techniques.size()).second)
        coverage.techniques.push_back({technique, chapter_name(chapter.number), {}});
  for (const CatalogRow& row : catalog) {
    row_of.emplace(row.id, coverage.catalog.size());
    coverage.catalog.push_back({row, {}});
  }
  for (const ExperimentInfo& experiment : experiments) {
    for (const VariantInfo& variant : experiment.variants)
      for (const std::string& technique : variant.techniques) {
        const std::string id = experiment.id + "/" + variant.id;
        if (const auto found = technique_of.find(technique); found != technique_of.end())
          add(coverage.techniques[found->second].shown, id);
        else
          coverage.unknown.push_back(fmt::format("{}: no chapter introduces '{}'", id, technique));
      }
    for (const std::string& row : experiment.catalog)
      if (const auto found = row_of.find(row); found != row_of.end())
        add(coverage.catalog[found->second].shown, experiment.id);
      else
        coverage.unknown.push_back(fmt::format("{}: the catalog has no row '{}'", experiment.id, row));
  }
  return coverage;
}

std::vector<std::string> scope_breaches(const std::vector<Chapter>& chapters,
                                        const std::vector<ExperimentInfo>& experiments) {
  std::map<std::string, int> introduced;
  std::map<int, std::vector<std::string>> exceptions;
  for (const Chapter& chapter : chapters) {
    for (const std::string& technique : chapter.techniques) introduced.emplace(technique, chapter.number);
    exceptions[chapter.number] = chapter.also;
  }
  std::vector<std::string> breaches;
  for (const ExperimentInfo& experiment : experiments) {
    const int number = chapter_number(experiment.id);
    if (number == 0) continue;
    for (const VariantInfo& variant : experiment.variants) {
      if (variant.kind == Kind::library || variant.kind == Kind::engine) continue;
      for (const std::string& technique : variant.techniques) {
        const auto& also = exceptions[number];
        if (std::find(also.begin(), also.end(), technique) != also.end()) continue;
        const auto found = introduced.find(technique);
        if (found == introduced.end())
          breaches.push_back(fmt::format("{}/{} uses '{}', which no chapter introduces; is it misspelt?",
                                         experiment.id, variant.id, technique));
        else if (found->second > number)
          breaches.push_back(fmt::format("{}/{} uses {} of {}, a later chapter", experiment.id, variant.id,
                                         technique, chapter_name(found->second)));
      }
    }
  }
  return breaches;
}

nlohmann::json to_json(const Coverage& coverage) {
  return {{"schema", "fathom.coverage/2"},
          {"techniques", techniques_json(coverage.techniques)},
          {"catalog", catalog_json(coverage.catalog)},
          {"unknown", coverage.unknown}};
}

}  // namespace fathom::lab
