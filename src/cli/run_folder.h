// artifacts/<time>_<label>/: what a run leaves on disk, and how the other verbs find it again.
//
//   results.json   everything, with raw samples; rewritten whole after every experiment
//   summary.json   the same without samples, small enough to read hundreds for the logbook
//   manifest.json  how it came about
//   report.html
//   <chapter>/<experiment>/<variant>/metrics.json
//   ../index.html  the logbook of all runs
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "cli/table.h"
#include "lab/record.h"

namespace fathom::cli {

void add_artifacts_flag(CLI::App& verb, std::string& artifacts);

// Makes "20260502T100000Z_nightly" there, with "-2" after it when that exists.
std::string make_run_folder(const std::string& artifacts, const std::string& started,
                            const std::string& label);

void write_results(const std::string& folder, const lab::RunRecord& run);
// All the other files of a finished run, and the logbook.
void write_run(const std::string& artifacts, const std::string& folder, const lab::RunRecord& run);
void write_index(const std::string& artifacts);

std::vector<std::string> run_folders(const std::string& artifacts);  // oldest first; those with results

struct FoundRun {
  std::string path;
  lab::RunRecord run;
};
// `given`: a folder or a results.json; empty: the newest run under `artifacts`. Throws UsageError.
FoundRun find_run(const std::string& given, const std::string& artifacts);

// Every metric of every metrics.json below `folder`: experiment, variant, point, metric, value, better.
Table metrics_table(const std::string& folder);

// Of every experiment: the hash of its sources as this program was built.
std::map<std::string, std::string> sources_now();

std::string utc_now();  // "2026-05-02T10:00:00Z"

}  // namespace fathom::cli
