// The parts of a report that speak of single variants: an experiment's section, and what failed or did not
// run.
#pragma once

#include <string>

#include "lab/record.h"

namespace fathom::lab {

std::string experiment_html(const ExperimentRecord& experiment, int number,
                            bool stale);          // has the id "e<number>"
std::string failures_html(const RunRecord& run);  // empty when nothing failed
std::string skips_html(const RunRecord& run);     // empty when nothing was skipped

}  // namespace fathom::lab
