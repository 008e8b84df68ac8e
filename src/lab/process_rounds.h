// Rounds in which every sample is the first call of a fresh process: `fathom run --cold-start`, and
// experiments with a variant that declares .own_process.
#pragma once

#include "lab/child_process.h"
#include "lab/experiment_info.h"
#include "lab/measure_options.h"
#include "lab/record.h"

namespace fathom::lab {

bool runs_in_process_rounds(const ExperimentInfo& experiment, const RunOptions& run);

// One child proves all variants at the check points; then rounds alternate processes of the variants that
// passed, 24 of them (a quick run: 12).
void run_process_rounds(const ExperimentInfo& experiment, const MeasureOptions& options,
                        ExperimentRecord& record,
                        const std::function<void(const PhaseBoard::Phase&)>& on_tick);

}  // namespace fathom::lab
