// An invented run for the tests of reports: every verdict, outcome and kind of skip, at the sizes of a real
// run. None of its numbers was measured.
#pragma once

#include "lab/record.h"
#include "report/roofline.h"

namespace fathom::report {

lab::RunRecord fixture_run();
Roofs fixture_roofs();

}  // namespace fathom::report
