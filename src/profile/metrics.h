// Which hardware counters are read, by the names each chip gives them. Names differ between chips and one
// unknown name fails the whole set, so every name here is asked for by metrics_cuda_test.cpp, which needs no
// GPU.
//
//   minimal    time, DRAM bytes, warps: one pass over a kernel
//   roofline   and L2 and L1 bytes, fp32 instructions: two passes
//   deep_dive  and tensor operations, stalls, bank conflicts, hit rates, speed-of-light: up to 20 passes
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
  bool adds;               // over kernels; otherwise their mean over time counts
  bool higher_is_better;
};

// Of a chip as CUPTI calls it: GA100, AD102 to AD107, GH100, GB100 and GB102. Empty for others.
std::vector<Counter> counters(MetricSet set, std::string_view chip);

// Of several kernels together: sums, or means weighted by the time each took. A counter that one of them
// lacks is left out.
std::map<std::string, double> combined_counters(const std::vector<const lab::KernelRecord*>& kernels);

bool higher_is_better(std::string_view counter);  // by our name

}  // namespace fathom::profile
