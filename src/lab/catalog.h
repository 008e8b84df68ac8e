// The catalog (experiments/catalog.csv): every technique and tool that Fathom is asked to have, and what of
// it works today. A row says `works` only where it names an experiment or a test that proves it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "lab/experiment_info.h"

namespace fathom::lab {

struct CatalogRow {
  std::string id;       // "tiling-007": area and number
  std::string chapter;  // "ch09"; "lab", "plan", "tool", ... where it belongs to no chapter
  std::string name;     // "Online softmax"
  std::string what;     // is asked for
  std::string status;   // works | partial | none
  std::string where;    // is what there is, and what is missing
  std::string area() const { return id.substr(0, id.rfind('-')); }
};

// A broken line, an unknown status or an id given twice is an Error that names the line.
Result<std::vector<CatalogRow>> parse_catalog(std::string_view csv);

// What a row's text names: "src/lab/target.cpp", "results/h200/ch09/roofline_*.json"; "ch12/graph_replay".
struct Named {
  std::vector<std::string> paths, experiments;
};
Named named_in(std::string_view text);

// Rows that name a path that is not below `root` or an experiment that does not exist, that say `works`
// without an experiment or a test file, or that say `none` although an experiment names them: "tiling-007:
// ...".
std::vector<std::string> catalog_breaches(const std::vector<CatalogRow>& catalog,
                                          const std::vector<ExperimentInfo>& experiments,
                                          const std::filesystem::path& root);

}  // namespace fathom::lab
