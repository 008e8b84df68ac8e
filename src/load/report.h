// The result of a load test in the formats of `vllm bench serve`: its block of text and its JSON keys, so
// that tools for one read the other.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "load/arrivals.h"
#include "load/run.h"
#include "load/statistics.h"

namespace fathom::load {

// The parameters of the test.
struct Config {
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
// Parses "ttft,tpot" and "50,99.9". An error names the wrong word and the allowed ones.
Result<ReportedMetrics> parse_metrics(const std::string& names, const std::string& percentiles);

// Ends with a newline. Client queueing appears only with a concurrency limit. Failures, with their reasons,
// and unfinished requests have lines that vLLM does not print.
std::string report_text(const Config& setup, const Summary& summary, const ReportedMetrics& metrics);

// The keys give the units (seconds or milliseconds). A statistic without samples is null.
nlohmann::json report_json(const Config& setup, const Summary& summary, const ReportedMetrics& metrics);

// --save-detailed: lists under vLLM's keys, in seconds, with one element for each request in order of
// arrival.
void add_details(nlohmann::json& result, const RunResult& run);

// "P99", "P99.9".
std::string percentile_name(double p);

}  // namespace fathom::load
