// An invented run for the tests of reports: every verdict, outcome and kind of skip, at sizes a real run has.
// Its numbers were measured nowhere.
#pragma once

#include "lab/record.h"
#include "lab/roofline.h"

namespace fathom::lab {

RunRecord fixture_run();
Roofs fixture_roofs();

}  // namespace fathom::lab
