// What limits the baseline and the best variant of a point, a sentence each.
#pragma once

#include <string>

#include "lab/record.h"
#include "report/context.h"

namespace fathom::report {

// Empty where the context has no diagnosis of the point.
std::string diagnosis_lines(const lab::ExperimentRecord& experiment, const lab::PointRecord& point,
                            const ReportContext& context);

}  // namespace fathom::report
