// An invented run for the tests of reports: every verdict, outcome and kind of skip, at the sizes of a real
// run. None of its numbers was measured.
#pragma once

#include "lab/record.h"
#include "report/context.h"

namespace fathom::report {

lab::RunRecord fixture_run();
lab::RunRecord large_fixture_run();  // 85 experiments that ran and 120 that were skipped, one point each
Roofs fixture_roofs();
ReportContext fixture_context();  // roofs, a stale experiment, notes, sources, and a record of an earlier run

}  // namespace fathom::report
