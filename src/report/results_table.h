// The table of results: a row for each experiment that ran, which opens into its panel. A row is a <details>,
// so that it opens without a script; the page's script sorts and filters by the rows' data attributes.
#pragma once

#include <string>

#include "lab/record.h"
#include "report/context.h"

namespace fathom::report {

// With its heading and id "results". Experiments that were skipped as a whole have no row: skips_html() has
// them.
std::string results_table(const lab::RunRecord& run, const ReportContext& context);

}  // namespace fathom::report
