// Every experiment of the program, registered at start-up by FATHOM_REGISTER.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "lab/candidate_library.h"
#include "lab/experiment_info.h"

namespace fathom::lab {

const std::vector<ExperimentInfo>& experiments();            // sorted by id
const ExperimentInfo* find_experiment(std::string_view id);  // by exact id; null when there is none

// An error where an experiment takes no candidates: it runs on a GPU, or its samples are steps of several
// ranks or replays.
Status takes_candidates(const ExperimentInfo& experiment);
// Adds a variant to an experiment. An error where it takes none, or has one of that name.
Status add_candidate(std::string_view id, const Candidate& candidate);

// The id an experiment declared in `file` gets:
// ".../experiments/ch07_memory_access/transpose_cpu/experiment.cpp" is "ch07/transpose_cpu",
// ".../experiments/labs/matmul/fp8/experiment.cpp" is "labs/matmul/fp8".
std::string experiment_id(std::string_view file);

}  // namespace fathom::lab
