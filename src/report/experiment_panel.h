// What a row of the results opens into: everything that is known about one experiment.
#pragma once

#include <string>

#include "lab/record.h"
#include "report/context.h"

namespace fathom::report {

// The question; for each point the ladder of variants with intervals, predictions and outcomes, and the
// distribution of samples; then the place under the roofline, metrics and counters, the change since the
// reference record, notes, and the sources of neighbouring variants. What is not at hand is said in a line.
std::string experiment_panel(const lab::RunRecord& run, size_t number, const ReportContext& context);

}  // namespace fathom::report
