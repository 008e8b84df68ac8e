// The HTML page of `fathom bench serve`: latency and throughput against load, latency against context length,
// and all numbers as tables.
#pragma once

#include <string>
#include <vector>

#include "load/report.h"
#include "load/run.h"
#include "load/statistics.h"

namespace fathom::cli {

struct LoadPoint {
  load::Config setup;
  load::Summary summary;
  double of_saturation = 0;  // request rate over the saturation rate; 0: not known
};

struct LengthPoint {
  int64_t input_len = 0;  // requested tokens
  load::Summary summary;
};

struct LoadReport {
  std::string server, workload;  // "http://127.0.0.1:8000/v1/completions", "random: 1024 tokens in, 128 out"
  std::vector<LoadPoint> points;
  load::Saturation saturation;       // no trials: not searched
  std::vector<LengthPoint> lengths;  // ascending
  std::string lengths_load;          // how requests of `lengths` were sent: "one after another"
};

std::string bench_serve_page(const LoadReport& report);  // self-contained HTML

}  // namespace fathom::cli
