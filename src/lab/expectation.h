// What this machine is expected to do: one committed record an experiment,
// results/<machine>/<chapter>/<experiment>.json, in the schema of results.json with its provenance beside.
// A run is checked against them by intervals (lab/compare.h); speed-ups are never stored apart from the times
// they come from.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "lab/compare.h"
#include "lab/record.h"

namespace fathom::lab {

struct Provenance {
  std::string written_by;  // user name of the person or job
  std::string written_at;  // ISO 8601, UTC
  std::string from_run;    // label and start of the run
  std::string commit;      // the program's, with "+" when its tree was dirty
};

struct Expectation {
  std::string path;
  std::string experiment;
  Provenance provenance;
  RunRecord record;  // holds this one experiment
};

// "<results>/<machine>/ch07/transpose_cpu.json"
std::string expectation_path(const std::string& results, const std::string& machine,
                             const std::string& experiment);

Result<Expectation> read_expectation(const std::string& path);
// All records of one machine, or of every machine when `machine` is empty, sorted by path. None where the
// folder does not exist. The first broken file is an Error that names it.
Result<std::vector<Expectation>> read_expectations(const std::string& results, const std::string& machine);

// Whether the experiment's sources have changed since its record was written, or it is gone.
bool is_stale(const Expectation& expectation);

struct Written {
  std::vector<std::string> paths;
  std::vector<std::string> refused;  // "ch07/x: wrong output; ...", never recorded
};
// Writes or replaces the records of every experiment of `run` that was measured without a fault.
Written update_expectations(const std::string& results, const RunRecord& run, const Provenance& by);

struct ExpectationCheck {
  Comparison comparison;                // A: expected, B: the run
  std::vector<std::string> unexpected;  // experiments of the run without a record
  std::vector<std::string> not_run;     // records without an experiment in the run
  std::vector<std::string> stale;       // sources changed since the record was written: verdicts are advisory
  bool missed() const { return comparison.regressed(); }
};
Result<ExpectationCheck> check_expectations(const std::vector<Expectation>& expected, const RunRecord& run,
                                            const CompareOptions& options = {});

nlohmann::json to_json(const ExpectationCheck& check);

}  // namespace fathom::lab
