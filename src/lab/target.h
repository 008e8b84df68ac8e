// Targets as a person types them, resolved against the registry:
//
//   ch07                      every experiment of chapter 7 (ch7 is the same)
//   ch07:transpose_cpu        one experiment (ch07/transpose_cpu is the same)
//   ch07:transpose_cpu/tiled  one variant of it, beside the baseline that ratios need
//   labs/matmul               every experiment of a lab; labs/matmul:fp8 one of them
//   ch0*   ch07:*_cpu   ch09:matmul_cpu/*_1t     globs, within one part of the name
//   ch07/transpose_cpu/padded?n=4096             the id of a result: axes follow the question mark
//
// Other names of experiments (ExperimentInfo::aliases) and the labels of experiments/labels.toml work too; a
// label whose experiment is still to come resolves to a skip, `not_built`. A label of several targets is a
// sequence: a run keeps its order.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "lab/experiment_info.h"
#include "lab/record.h"
#include "lab/run_options.h"

namespace fathom::lab {

// A line of labels.toml: a well-known name and the target it stands for.
struct TargetLabel {
  std::string name;     // "ch10:cluster_multicast"
  std::string target;   // "ch12:graph_replay", or several with a blank between; empty while it is not built
  std::string planned;  // where it will come: "ch10: thread-block clusters"
};
Result<std::vector<TargetLabel>> parse_labels(std::string_view toml);

struct Planned {
  std::string label;
  Skip skip;
  std::string detail;
};

struct Targets {
  std::vector<Selection> selections;  // in the order of the names, each experiment once
  std::vector<Planned> planned;
  std::vector<Axis> axes;  // of the part after '?'
};

// No names: every experiment. An error names the nearest target there is.
Result<Targets> resolve_targets(const std::vector<std::string>& names,
                                const std::vector<ExperimentInfo>& experiments,
                                const std::vector<TargetLabel>& labels);

// "ch07/transpose_cpu/padded?n=4096": the id of one result.
std::string result_id(std::string_view experiment, std::string_view variant, const Point& at);

// Insertions, deletions, substitutions and swaps of neighbours between two words.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`; empty when none is near enough to be a misspelling of it.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace fathom::lab
