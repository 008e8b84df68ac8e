// artifacts/<time>_<label>/, the folder of a run: writing it, and finding runs again.
//
//   results.json   everything, with raw samples; rewritten after every experiment
//   summary.json   the same without samples: the logbook reads hundreds of them
//   manifest.json  the circumstances of the run
//   report.html
//   <chapter>/<experiment>/<variant>/metrics.json
//
// artifacts/index.html: the logbook of all runs
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/table.h"
#include "lab/record.h"

namespace fathom::cli {

void add_artifacts_flag(CLI::App& verb, std::string& artifacts);

// Creates "20260502T100000Z_nightly", or "..._nightly-2" if that exists, and returns its path.
std::string make_run_folder(const std::string& artifacts, const std::string& started,
                            const std::string& label);

void write_results(const std::string& folder, const lab::RunRecord& run);
// Writes all other files of a finished run, and the logbook. The report compares it with the records under
// `results` (empty: as results_folder()).
void write_run(const std::string& artifacts, const std::string& folder, const lab::RunRecord& run,
               const std::string& results = "");
// On stderr, behind what stdout has: both may be the same file.
void print_report_path(const std::string& folder);
void write_index(const std::string& artifacts);

std::vector<std::string> run_folders(const std::string& artifacts);  // those with results, oldest first

struct FoundRun {
  std::string path;
  lab::RunRecord run;
};
// `given` is a folder or a results.json; empty means the newest run under `artifacts`. Throws UsageError.
FoundRun find_run(const std::string& given, const std::string& artifacts);

// Every metric of every metrics.json below `folder`: experiment, variant, its kind, point, metric, value,
// better. Throws UsageError where there is none, or one is broken.
Table metrics_table(const std::string& folder);

}  // namespace fathom::cli
