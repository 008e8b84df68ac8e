// Which experiments show which techniques and catalog rows, and on which machines those were measured. What
// of a row works is in the catalog itself (lab/catalog.h): an experiment that names a row may show a part of
// it.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "lab/catalog.h"
#include "lab/expectation.h"
#include "lab/experiment_info.h"

namespace fathom::lab {

struct Chapter {
  int number = 0;
  std::string slug, title;
  std::vector<std::string> techniques;  // that it introduces
  std::vector<std::string> also;        // techniques of later chapters that it may use
};
Result<std::vector<Chapter>> parse_chapters(std::string_view toml);

struct Shown {
  std::vector<std::string> by;     // "ch09/online_softmax_cpu/online"; experiments for catalog rows
  std::set<std::string> machines;  // with a record in which at least one of them was timed
};

struct TechniqueCoverage {
  std::string name;     // "online_softmax"
  std::string chapter;  // "ch09"
  Shown shown;
  std::string_view status() const;  // "measured", "declared" (nowhere timed yet), "not built"
};

struct CatalogCoverage {
  CatalogRow row;
  Shown shown;
};

struct Coverage {
  std::vector<TechniqueCoverage> techniques;  // every one of chapters.toml, in its order
  std::vector<CatalogCoverage> catalog;       // every row, in its order
  // "ch07/x/y: no chapter introduces 'tilling'", "ch07/x: the catalog has no row tiling-77"
  std::vector<std::string> unknown;
};
Coverage coverage_of(const std::vector<Chapter>& chapters, const std::vector<CatalogRow>& catalog,
                     const std::vector<ExperimentInfo>& experiments, const std::vector<Expectation>& records);

// Techniques that a variant uses although its chapter may not: "ch07/x/y uses kernel_fusion of ch09".
// Libraries and labs may use all.
std::vector<std::string> scope_breaches(const std::vector<Chapter>& chapters,
                                        const std::vector<ExperimentInfo>& experiments);

nlohmann::json to_json(const Coverage& coverage);

}  // namespace fathom::lab
