// Where the time of an engine's steps goes on a GPU: so much into each kernel, so much into copies, and so
// much with nothing to do.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "profile/activity.h"

namespace fathom::profile {

struct StepRow {
  std::string name;     // of a kernel, whatever its grid, or of a kind of copy
  double launches = 0;  // a step
  double time_ns  = 0;  // a step
  double share    = 0;  // of the step
};

// Means over `steps` steps. Rows and gaps add up to the step.
struct StepTable {
  int64_t steps  = 0;
  double step_ns = 0;
  double gap_ns  = 0;         // when nothing ran
  std::vector<StepRow> rows;  // longest first
};

// What one GPU did after from_ns and until to_ns, as so many steps. Kernels may overlap (under programmatic
// dependent launch each begins before the one before it has ended, and waits): a kernel is given the time
// from its start, or from the end of whatever began before it if that is later, to its own end.
StepTable step_table(const Activity& activity, int64_t from_ns, int64_t to_ns, int64_t steps);

// Of a batch of prompts: prefill is one step, until all have their first token, and each step of decoding
// after it brings every sequence one more.
struct BatchSteps {
  StepTable prefill, decode;
};

// A step ends with the copy of its tokens to the host, who hears of it a little later, by a clock that may be
// some microseconds off: so each phase ends with the copy whose end is nearest to when the host heard of it.
// `start_ns`: the batch was submitted; `begun_ns`: the last of the first tokens came; `last_ns`: the last
// token that all sequences still took part in. All on the clock of `activity`. Without decoding the two are
// equal.
BatchSteps batch_steps(const Activity& activity, int64_t start_ns, int64_t begun_ns, int64_t last_ns);

// A header, a row for each kernel, one for the gaps and one for the whole step; times in microseconds.
std::vector<std::vector<std::string>> cells(const StepTable& table);
nlohmann::json to_json(const StepTable& table);

}  // namespace fathom::profile
