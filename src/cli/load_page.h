// The page of a load test: latency and throughput against load, latency over context lengths, and all numbers
// as tables.
#pragma once

#include <string>
#include <vector>

#include "serve/load_report.h"
#include "serve/load_run.h"
#include "serve/load_statistics.h"

namespace fathom::cli {

struct LoadPoint {
  serve::LoadSetup setup;
  serve::LoadSummary summary;
  double of_saturation = 0;  // its request rate; 0: not relative to one
};

struct LengthPoint {
  int64_t input_len = 0;  // tokens asked for
  serve::LoadSummary summary;
};

struct LoadReport {
  std::string server, workload;  // "http://127.0.0.1:8000/v1/completions", "random: 1024 tokens in, 128 out"
  std::vector<LoadPoint> points;
  serve::Saturation saturation;      // no trials: none was looked for
  std::vector<LengthPoint> lengths;  // ascending
  std::string lengths_load;          // how those were asked: "one after another"
};

std::string load_page(const LoadReport& report);  // HTML, complete in itself

}  // namespace fathom::cli
