// The parts of a report about single variants: the section of an experiment, and the lists of failures and
// skips.
#pragma once

#include <string>

#include "lab/record.h"

namespace fathom::report {

std::string experiment_html(const lab::ExperimentRecord& experiment, int number,
                            bool stale);               // has the id "e<number>"
std::string failures_html(const lab::RunRecord& run);  // empty when nothing failed
std::string skips_html(const lab::RunRecord& run);     // empty when nothing was skipped

}  // namespace fathom::report
