// The chart of an experiment's samples, a complete SVG element for a page that has chart_style().
#pragma once

#include <string>

#include "lab/record.h"

namespace fathom::report {

// A lane for each variant: samples in the order of rounds, so that drift shows, and beside them their
// histogram, both as deviation from the variant's median. Committed records have 64 quantiles instead, or
// only a summary, which is drawn as a box. Empty when nothing was timed.
std::string sample_chart(const lab::PointRecord& point, const std::string& id, const std::string& name);

}  // namespace fathom::report
