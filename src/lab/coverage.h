// Which experiments show which techniques and catalog rows, and on which machines those were measured.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
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

struct CoverageRow {
  std::string name;                   // "online_softmax", "tiling-007"
  std::string chapter;                // "ch09", for techniques
  std::vector<std::string> variants;  // "ch09/online_softmax_cpu/online"; experiments for catalog rows
  std::set<std::string> machines;     // with a record in which at least one of them was timed
  std::string_view status() const;    // "measured", "declared" (nowhere timed yet), "planned" (no experiment)
};

struct Coverage {
  std::vector<CoverageRow> techniques;  // every one of chapters.toml, in its order
  std::vector<CoverageRow> catalog;     // every row that an experiment names
  std::vector<std::string> unknown;     // "ch07/x/y: no chapter introduces 'tilling'"
};
Coverage coverage_of(const std::vector<Chapter>& chapters, const std::vector<ExperimentInfo>& experiments,
                     const std::vector<Expectation>& records);

// Techniques that a variant uses although its chapter may not: "ch07/x/y uses kernel_fusion of ch09".
// Libraries and labs may use all.
std::vector<std::string> scope_breaches(const std::vector<Chapter>& chapters,
                                        const std::vector<ExperimentInfo>& experiments);

nlohmann::json to_json(const Coverage& coverage);

}  // namespace fathom::lab
