// What the program knows beside a record when it writes a report: ceilings, sources and reference records.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/experiment_info.h"
#include "lab/record.h"
#include "report/context.h"

namespace fathom::cli {

// Of this program, the source tree around the current folder and the records that `results` holds of the
// run's machine (empty: as results_folder()). Parts that are not there are absent; broken records are too,
// after a line on stderr.
report::ReportContext report_context(const lab::RunRecord& run, const std::string& results = "");

// Notes and sources of an experiment in the tree at `root`; parts without a file are left out.
report::ExperimentText experiment_text(const std::string& root, const lab::ExperimentInfo& experiment);

// The records of the run's machine and the run against them; absent without records.
std::optional<report::Reference> reference_of(const lab::RunRecord& run, const std::string& results);

}  // namespace fathom::cli
