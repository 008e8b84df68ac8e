// The results of a run or of records with their diagnoses, and what cures gained where they were measured.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/diagnosis.h"
#include "lab/record.h"

namespace fathom::cli {

struct DiagnosedResult {
  std::string id;      // "ch07/transpose_gpu/naive?n=4096"
  std::string target;  // without the point: what measures it again
  std::string limit;
  bool on_gpu    = false;
  double time_ns = 0;
  std::optional<double> share;
  diagnose::Diagnosis diagnosis;
};

struct Diagnosed {
  std::string machine, from;  // "results/h200", "artifacts/..."
  std::vector<DiagnosedResult> results;
};

struct DiagnoseFrom {
  std::vector<std::string> names;  // targets; and one path at most: a run, a record, or a folder of records
  std::string artifacts, results, machine;
};
// Without a path: the newest run that has the targets, or else the records of `machine`, of this machine, or
// of another that has them. Throws UsageError where nothing has.
Diagnosed diagnosed_results(const DiagnoseFrom& from);

// All timed variants of a run; the rates of its machine are those of the run and of `records`.
std::vector<DiagnosedResult> diagnosed_results(const lab::RunRecord& run,
                                               const std::vector<lab::ExperimentRecord>& records);

// All experiments that `results` holds of a machine; none where a record is broken.
std::vector<lab::ExperimentRecord> recorded_experiments(const std::string& results,
                                                        const std::string& machine);

// The largest recorded ratio of each variant, "ch06/bank_conflicts/padded": of `machine` where it has one.
struct GainedOn {
  double ratio = 0;
  std::string machine;
};
using Gained = std::map<std::string, GainedOn>;
Gained recorded_gains(const std::string& results, const std::string& machine);

}  // namespace fathom::cli
