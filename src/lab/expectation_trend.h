// What several runs of a machine say of each quantity that its records hold: times, ratios, shares of limits,
// and metrics (TPOT, hit rates, the skew of a router). `compare` asks whether one run regressed; a trend
// shows what one run cannot: a value that is a little worse every time, or another every time.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "lab/expectation.h"
#include "lab/record.h"

namespace fathom::lab {

// One quantity of one result over the runs.
struct Trend {
  std::string result;                         // "ch17/routing_static/by_cost?requests=64"
  std::string metric;                         // "time_ns", "ratio", "share_of_limit", or the name of a metric
  std::string better;                         // "lower" | "higher"
  std::optional<double> expected;             // of the record
  bool stale = false;                         // the sources changed between the record and the newest run
  std::vector<std::optional<double>> values;  // one for each run

  int runs() const;                      // that have it
  int worse(double margin) const;        // runs that are worse than expected by more than the margin
  std::optional<double> median() const;  // over the runs
  std::optional<double> newest() const;  // of the last run that has it
  std::optional<double> spread() const;  // (largest - smallest) / median; of at least two runs
  std::optional<double> change() const;  // newest / expected - 1
};

struct Trends {
  std::string machine;
  std::vector<std::string> started;  // of the runs, oldest first
  std::vector<Trend> all;            // sorted by result and metric; only what some run has
};

// `runs`: of one machine, oldest first. `filter`: a regular expression on "<result> <metric>"; an invalid one
// is an Error. Cold starts (another quantity) and what is not ok are left out.
Result<Trends> trends_of(const std::vector<RunRecord>& runs, const std::vector<Expectation>& expected,
                         const std::string& filter = {});

nlohmann::json to_json(const Trends& trends, double margin);  // fathom.trends/1

}  // namespace fathom::lab
