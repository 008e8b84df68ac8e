// One picture of a run: every experiment at its speed-up (with interval) and its share of the limit. HTML
// boxes placed in percent, so that one picture fits a desk and a phone.
#pragma once

#include <string>
#include <vector>

#include "lab/record.h"
#include "report/lessons.h"

namespace fathom::report {

// The best variant at the headline point of each experiment; `lessons` are marked by their numbers. Empty
// when no experiment has a valid ratio.
std::string overview_chart(const lab::RunRecord& run, const std::vector<Lesson>& lessons);

}  // namespace fathom::report
