// Hardware counters are taken in a pass of their own. So that nobody shows them beside times of another
// build, run, point, variant or machine, they are bound to what they were taken with, and whoever reads a
// record checks the binding.
#pragma once

#include <string>

#include "lab/record.h"

namespace fathom::lab {

// Of the metrics of a variant, those that were counted: "counted_dram_bytes_read".
bool is_counted(const std::string& metric);

// Binds the counters of each variant, on the machine where they were taken.
void bind_counters(const std::string& machine, ExperimentRecord& experiment);

// Marks a variant whose counters were not taken with the times beside them: invalid, caught by
// "counter_binding". The counters are dropped.
void refuse_stale_counters(RunRecord& run);

}  // namespace fathom::lab
