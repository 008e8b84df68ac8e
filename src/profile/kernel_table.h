// A table of the kernels of a call, one row for each kernel and launch configuration, and the rates of the
// call's declared cost.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/profiler.h"

namespace fathom::profile {

struct KernelRow {
  std::string name;
  std::array<int64_t, 3> grid{}, block{}, cluster{};
  int registers  = 0;  // a thread
  int64_t shared = 0;  // bytes a block, static and dynamic
  int64_t local  = 0;  // bytes a thread
  std::optional<double> occupancy;
  std::string limiter;
  int calls      = 0;
  double time_ns = 0;                      // of all calls
  double share   = 0;                      // of the time of all kernels
  std::map<std::string, double> counters;  // of profile/metrics.h, combined over all calls
};

struct KernelTable {
  std::vector<KernelRow> rows;  // longest first
  int kernels    = 0;
  double time_ns = 0;  // in kernels
  double span_ns = 0;  // from the first start to the last end: includes gaps, counts overlaps once
  std::optional<double> bytes_per_s;  // declared cost over the span; absent where none was declared
  std::optional<double> flops_per_s;
};

KernelTable kernel_table(const std::vector<lab::KernelRecord>& kernels, const lab::Cost& cost);

// A header, the rows, and a last row for the whole call.
std::vector<std::vector<std::string>> cells(const KernelTable& table);

std::string to_text(const KernelTable& table);      // columns aligned, for a terminal
std::string to_markdown(const KernelTable& table);  // GitHub's Markdown, aligned
// The counters of the longest kernels, a row each, and what each of them means; empty where none were read.
std::string counters_markdown(const KernelTable& table);
nlohmann::json to_json(const KernelTable& table);  // "fathom.kernels/1"

}  // namespace fathom::profile
