// The record of a run, results.json: reading, writing, and the vocabulary of outcomes. docs/records.md
// documents every field. Times are nanoseconds, rates bytes or flops per second; a value that was not
// measured is absent.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "lab/metric.h"
#include "lab/point.h"

namespace fathom::lab {

enum class Outcome { ok, skipped, wrong, invalid, crashed, timeout, oom };
std::string_view to_string(Outcome outcome);

// A skip has a type, so that it can be counted, and says what would make the variant run.
struct Skip {
  // needs_cuda | needs_feature | needs_gpus | needs_library | needs_memory | needs_permission | needs_model |
  // beyond_up_to | not_built (a label whose experiment is still to come)
  std::string reason;
  std::string need;  // "avx2", "libopenblas.so.0", "n <= 512"
};

struct Spread {                       // of one quantity over the rounds
  double median = 0, lo = 0, hi = 0;  // median and its 95 % interval
  double min = 0, p10 = 0, p90 = 0, mad = 0;
  double autocorrelation = 0;  // lag 1
};

struct Ratio {  // baseline time over variant time: above 1 is faster
  double median = 0, lo = 0, hi = 0;
};

struct Checked {
  int64_t timed_calls = 0;
  int64_t elements    = 0;  // of timed calls
  double max_error    = 0;
  double tolerance    = 0;  // at the element with the largest error
};

struct PredictionScore {
  std::string text;
  std::optional<bool> held;
};

struct VariantRecord {
  std::string id;
  std::string kind;  // baseline | optimized | library | engine
  std::string idea;
  std::vector<std::string> techniques;
  std::string library;  // name, version and flags, where the variant says
  int threads    = 1;
  Outcome status = Outcome::ok;
  std::optional<Skip> skip;
  std::string detail;                    // of anything but ok: what happened, in a sentence
  std::optional<std::string> caught_by;  // the defence: floor, fresh_inputs, poison, ...
  std::optional<std::string> invalid_reason;
  std::optional<Spread> time_ns;  // of one call
  std::optional<double> wall_ns;  // median, where the clock is cpu time
  std::optional<double> prepare_ns;
  std::optional<Ratio> ratio;          // absent for the baseline
  std::optional<std::string> verdict;  // FASTER | SLOWER | SAME | INCONCLUSIVE | INVALID
  std::optional<double> share_of_limit;
  std::optional<double> limit_rate;           // of the run's own control: bytes/s, flop/s or ns per load
  int64_t bytes_read = 0, bytes_written = 0;  // declared
  double flops = 0;
  std::optional<Checked> checked;
  std::optional<PredictionScore> prediction;
  std::map<std::string, Metric> metrics;
  std::string counters_bound_to;     // of the counters among the metrics: lab/counter_binding.h
  std::vector<double> samples_ns;    // raw, one a round; committed records carry quantiles instead
  std::vector<double> quantiles_ns;  // 64, evenly spaced
};

struct AaControl {
  double lo = 0, hi = 0;  // 99 % interval of baseline against itself
  bool advisory = false;  // it excludes 1: every verdict of this point is advisory
};

struct PointRecord {
  Point at;
  std::string cache, clock;
  std::string limit;  // "copy bandwidth, DRAM, 2 threads", in words
  std::optional<double> floor_ns;
  std::string baseline;  // id of the variant that ratios are against
  int64_t rounds = 0, calls_per_sample = 0;
  std::string stopped;  // precision | rounds | time
  std::optional<AaControl> aa;
  std::map<std::string, double> noise;  // steal_ms, involuntary_switches, ... over the timed rounds
  std::vector<VariantRecord> variants;
};

struct ExperimentRecord {
  std::string id;
  std::string question;
  std::string backend  = "cpu";
  std::string evidence = "measured";   // measured | emulated | modelled | compiled_only | cited
  Outcome status       = Outcome::ok;  // the worst of its variants
  std::optional<Skip> skip;
  std::string detail;
  std::string source_hash;  // lab/source_hash.h; a changed one makes a record stale
  std::vector<std::string> catalog;
  std::string group;   // comparison group; empty: none
  double seconds = 0;  // spent on the experiment
  std::vector<PointRecord> points;
};

struct RunRecord {
  std::string schema = "fathom.results/1";
  std::string label, started;  // ISO 8601, UTC
  std::string machine;         // id
  std::string manifest;        // JSON text: argv, commit, compiler, machine facts, seeds
  std::vector<ExperimentRecord> experiments;
};

nlohmann::json to_json(const PointRecord& point);
nlohmann::json to_json(const ExperimentRecord& experiment);
nlohmann::json to_json(const RunRecord& run);
Result<PointRecord> point_from_json(const nlohmann::json& json);
Result<ExperimentRecord> experiment_from_json(const nlohmann::json& json);
Result<RunRecord> run_from_json(const nlohmann::json& json);

Result<RunRecord> read_run(const std::string& path);  // results.json, or a folder that holds one

// The summary that is committed under results/<machine>/: no raw samples, 64 quantiles, at most 16 KB.
ExperimentRecord committed(ExperimentRecord experiment);

// 0 ok, 1 regression, 2 wrong, 3 invalid, 4 nothing but skips, 6 crash, time-out or memory; the worst wins
// (2, 6, 3, 1, 0).
int exit_code(const RunRecord& run);

}  // namespace fathom::lab
