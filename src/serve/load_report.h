// A load test's result as `vllm bench serve` writes it: the block of text with its labels, and the JSON with
// its keys, so that what reads the one reads the other.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "serve/arrivals.h"
#include "serve/load_run.h"
#include "serve/load_statistics.h"

namespace fathom::serve {

// What was asked for.
struct LoadSetup {
  std::string date;  // "20260502-101500"
  std::string backend = "openai", label, model_id, tokenizer_id, endpoint;
  int64_t num_prompts = 0;
  ArrivalProcess arrivals;
  int64_t max_concurrency = 0;  // 0: no limit
};

struct ReportedMetrics {
  std::vector<std::string> names  = {"ttft", "tpot", "itl"};  // and e2el
  std::vector<double> percentiles = {99};
};
// Of "ttft,tpot" and "50,99.9"; an error names what is wrong and what may stand there.
Result<ReportedMetrics> parse_metrics(const std::string& names, const std::string& percentiles);

// Ends with a newline. The wait in the client is shown where a limit of concurrency made one; what failed,
// with its reasons, and what was cut short have lines that vLLM does not print.
std::string load_text(const LoadSetup& setup, const LoadSummary& summary, const ReportedMetrics& metrics);

// Seconds and milliseconds as the keys say; a statistic of no samples is null.
nlohmann::json load_json(const LoadSetup& setup, const LoadSummary& summary, const ReportedMetrics& metrics);

// --save-detailed: lists with one element a request, in order of arrival, under vLLM's keys. Seconds.
void add_details(nlohmann::json& result, const LoadResult& run);

// "P99", "P99.9".
std::string percentile_name(double p);

}  // namespace fathom::serve
