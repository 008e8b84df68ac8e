// The GPUs of an experiment: one, or one for each rank.
#pragma once

#include "cuda/device.h"
#include "lab/experiment_info.h"

namespace fathom::lab {

// Each experiment runs in a process whose first GPU is RunOptions::device of the run; the others follow it.
inline constexpr DeviceId kExperimentDevice{0};

Device* device_of_rank(int rank);  // null where this process sees fewer
// Where the memory of an experiment of one process is; null: on the host.
Device* device_of(const ExperimentInfo& experiment);

}  // namespace fathom::lab
