// The first screen of a report: what was measured, on what, how much was gained, how near to the limit, and
// what cannot be believed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/record.h"
#include "report/context.h"

namespace fathom::report {

// <header>: machine, date, commit and the headline counts. `manifest` may be discarded.
std::string report_header(const lab::RunRecord& run, const nlohmann::json& manifest,
                          const ReportContext& context);
// The picture, the most instructive results, and the doubts.
std::string first_screen(const lab::RunRecord& run, const ReportContext& context);

}  // namespace fathom::report
