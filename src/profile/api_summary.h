// What a trace spends its time in, as `nsys stats` tells it: API calls, kernels and copies by total time,
// each by the range (NVTX) in which the host made the call or the launch. Reads the traces of
// profile/timeline.h, and those of PyTorch's profiler, which are the same format (profile/trace.h).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace fathom::profile {

struct SummaryRow {
  std::string range;  // "decode"; of nested ones "step > decode"; empty: outside of all
  std::string name;
  std::string kind;  // of an API call: "launch", "module load", "allocation", ...
  int64_t calls   = 0;
  double total_ns = 0, median_ns = 0, min_ns = 0, max_ns = 0;
  double share = 0;  // of the time of all rows of its table
};

struct ApiSummary {
  std::vector<SummaryRow> api, kernels, copies;  // by range in the order they began, then the longest first
  std::vector<std::string> notes = {};
};

// Loading, allocating and building graphs belongs before a step that is repeated; their share says what a
// step pays because it does not.
std::string_view kind_of_call(std::string_view api_call);
bool is_set_up(std::string_view kind);

// An error says what is not as the format has it.
Result<ApiSummary> api_summary(const nlohmann::json& trace);
Result<ApiSummary> read_api_summary(const std::string& path);

// What share of the API calls' time is set-up, in a sentence; empty where there is none.
std::string set_up_text(const ApiSummary& summary);

// A header and the rows of one table; the range only where there are several.
std::vector<std::vector<std::string>> cells(const std::vector<SummaryRow>& rows, std::string_view what);
std::string to_markdown(const ApiSummary& summary);  // without its notes
nlohmann::json to_json(const ApiSummary& summary);   // "fathom.api_summary/1"

}  // namespace fathom::profile
