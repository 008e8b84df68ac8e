// Comparison groups: experiments that do the same work on another backend or in another setting, side by
// side.
#pragma once

#include <string>

#include "lab/record.h"

namespace fathom::report {

// One table for each group of which the run has at least two experiments; empty when there is none.
std::string groups_html(const lab::RunRecord& run);

}  // namespace fathom::report
