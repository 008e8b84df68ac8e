// Every experiment of the program, registered at start-up by FATHOM_REGISTER.
#pragma once

#include <string_view>
#include <vector>

#include "lab/experiment_info.h"

namespace fathom::lab {

const std::vector<ExperimentInfo>& experiments();            // sorted by id
const ExperimentInfo* find_experiment(std::string_view id);  // by exact id; null when there is none

// The id an experiment declared in `file` gets:
// ".../experiments/ch07_memory_access/transpose_cpu/experiment.cpp" is "ch07/transpose_cpu",
// ".../experiments/labs/matmul/fp8/experiment.cpp" is "labs/matmul/fp8".
std::string experiment_id(std::string_view file);

}  // namespace fathom::lab
