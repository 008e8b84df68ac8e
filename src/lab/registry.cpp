#include "lab/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/expect.h"
#include "lab/python_process.h"

namespace fathom::lab {
namespace {

// Function-local, so that it exists before the first registration in any link order.
std::vector<ExperimentInfo>& all() {
  static std::vector<ExperimentInfo> experiments;
  return experiments;
}

std::string folder_of(std::string_view file) {
  const size_t root = file.rfind("experiments/");
  FATHOM_EXPECT(
      root != std::string_view::npos && file.ends_with("/experiment.cpp"),
      fmt::format("an experiment is declared in experiments/<chapter>/<name>/experiment.cpp, not in {}",
                  file));
  return std::string(file.substr(root, file.rfind('/') - root));
}

}  // namespace

std::string experiment_id(std::string_view file) {
  const std::string folder = folder_of(file).substr(std::string_view("experiments/").size());
  const size_t slash       = folder.find('/');
  FATHOM_EXPECT(slash != std::string::npos, fmt::format("{} has no chapter folder", file));
  const std::string chapter = folder.substr(0, slash);
  if (chapter == "labs") return folder;
  return chapter.substr(0, chapter.find('_')) + folder.substr(slash);
}

void register_experiment(ExperimentInfo info, std::string_view file) {
  info.id     = experiment_id(file);
  info.folder = folder_of(file);
  FATHOM_EXPECT(!info.variants.empty(), info.id + " has no variants");
  FATHOM_EXPECT(find_experiment(info.id) == nullptr, info.id + " is registered twice");
  for (const VariantInfo& variant : info.variants)
    if (variant.python) variant.python->found_in(info.folder);
  std::set<std::string> ids;
  for (const VariantInfo& variant : info.variants)
    FATHOM_EXPECT(ids.insert(variant.id).second,
                  fmt::format("{} has two variants '{}'", info.id, variant.id));
  auto& experiments = all();
  const auto place =
      std::upper_bound(experiments.begin(), experiments.end(), info.id,
                       [](const std::string& id, const ExperimentInfo& e) { return id < e.id; });
  experiments.insert(place, std::move(info));
}

Status takes_candidates(const ExperimentInfo& experiment) {
  if (experiment.shape == Shape::call && experiment.backend == Backend::cpu) return Ok{};
  return Error{fmt::format(
      "{} takes no candidates: only experiments on CPUs do whose sample is one call of one process",
      experiment.id)};
}

Status add_candidate(std::string_view id, const Candidate& candidate) {
  for (ExperimentInfo& experiment : all()) {
    if (experiment.id != id) continue;
    if (Status takes = takes_candidates(experiment); !takes) return takes;
    for (const VariantInfo& variant : experiment.variants)
      if (variant.id == candidate.id)
        return Error{
            fmt::format("{} has a variant '{}' already; give the file another name", id, candidate.id)};
    experiment.variants.push_back(
        {.id = candidate.id, .idea = candidate.source, .threads = candidate.threads, .has_prepare = true});
    experiment.foreign->push_back({.candidate = candidate.library});
    return Ok{};
  }
  return Error{fmt::format("there is no experiment {}", id)};
}

const std::vector<ExperimentInfo>& experiments() { return all(); }

const ExperimentInfo* find_experiment(std::string_view id) {
  for (const ExperimentInfo& experiment : all())
    if (experiment.id == id) return &experiment;
  return nullptr;
}

}  // namespace fathom::lab
