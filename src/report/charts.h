// The charts of a report, each a complete SVG element for a page that has chart_style().
#pragma once

#include <string>

#include "lab/record.h"

namespace fathom::report {

// Ratios of every variant at every point with their intervals on a log axis, with the margin of SAME as a
// band. Empty when nothing has a ratio.
std::string ratio_chart(const lab::ExperimentRecord& experiment, const std::string& id);

// Raw samples of every variant in round order, as deviation from the variant's median, so that drift and
// noise show; the committed quantiles where a record has no samples. Empty when it has neither.
std::string sample_chart(const lab::PointRecord& point, const std::string& id, const std::string& name);

// Share of the limit of the best variant at every point of the run beside its baseline's, highest first.
// Empty when nothing has a share.
std::string share_chart(const lab::RunRecord& run);

}  // namespace fathom::report
