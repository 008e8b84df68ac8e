// The sets of hardware counters, with each chip's names. Names differ between chips, and one unknown name
// fails a whole set, so metrics_cuda_test.cpp checks every name with CUPTI, without a GPU.
//
//   minimal    time, DRAM bytes, warps: one pass over a kernel
//   roofline   adds L2 and L1 bytes, fp32 instructions: two passes
//   deep_dive  adds tensor operations, stalls, bank conflicts, hit rates, speed-of-light: up to 20 passes
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "lab/profiler.h"

namespace fathom::profile {

enum class MetricSet { minimal, roofline, deep_dive };
std::string_view to_string(MetricSet set);
Result<MetricSet> parse_metric_set(std::string_view name);

struct Counter {
  std::string_view name;   // ours, the same on every chip: "dram_bytes_read"
  std::string_view cupti;  // the chip's: "dram__bytes_read.sum"
  bool adds;               // over kernels; otherwise averaged, weighted by time
  bool higher_is_better;
};

// A set, or in its place sections by Nsight Compute's names: "WarpStateStats".
struct CounterChoice {
  MetricSet set                     = MetricSet::minimal;
  std::vector<std::string> sections = {};  // as parse_section returns them
};

std::vector<std::string_view> sections();
// Nsight Compute's parts of a section, such as MemoryWorkloadAnalysis_Tables, are the section. An error names
// the nearest one and all that there are.
Result<std::string> parse_section(std::string_view name);

// For a chip by CUPTI's name: GA100, AD102 to AD107, GH100, GB100 and GB102. Empty for others. Sections bring
// time and cycles along.
std::vector<Counter> counters(const CounterChoice& choice, std::string_view chip);
bool needs_counters(const CounterChoice& choice);  // false: LaunchStats alone

struct CounterMeaning {
  std::string_view name, cupti;
  MetricSet set;  // the smallest with it
  std::string_view section, meaning;
};
std::vector<CounterMeaning> meanings();              // of all chips
std::string_view meaning(std::string_view counter);  // in a sentence, by our name; empty for others

// Combines the counters of several kernels: sums, or means weighted by time. Leaves out a counter that one of
// them lacks.
std::map<std::string, double> combined_counters(const std::vector<const lab::KernelRecord*>& kernels);

bool higher_is_better(std::string_view counter);  // by our name

}  // namespace fathom::profile
