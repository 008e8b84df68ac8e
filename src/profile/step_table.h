// A breakdown of the time of an engine's steps on a GPU: kernels, copies, and gaps. With the costs that the
// kernels' launchers declare, also bytes, rates and shares of the limit.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "profile/activity.h"

namespace fathom::profile {

// The work of one op in a step, as its launcher declares it. Its kernels are those whose names contain both
// strings.
struct DeclaredCost {
  std::string kernel, instance;  // "wgmma_gemm_kernel", "SwigluEpilogue" or ""
  double launches = 0;           // a step
  double bytes = 0, flops = 0;   // a step
  bool expected = false;         // on average over random routing, not counted
};

struct StepRow {
  std::string name;                      // of a kernel, over all grids, or of a kind of copy
  double launches                  = 0;  // per step
  double time_ns                   = 0;  // per step
  double share                     = 0;  // of the step's time
  std::optional<DeclaredCost> cost = {};
};

// Means over `steps` steps. Rows and gaps add up to the step.
struct StepTable {
  int64_t steps  = 0;
  double step_ns = 0;
  double gap_ns  = 0;         // the GPU was idle
  std::vector<StepRow> rows;  // longest first
  std::vector<std::string> notes = {};
};

// What the machine reaches, as doctor measured it; null: not measured.
struct StepLimits {
  std::optional<double> read_bytes_per_s;
  std::optional<double> flops_per_s;
};

// The activity of one GPU between from_ns and to_ns, divided by `steps`. Kernels may overlap: under
// programmatic dependent launch each starts before the previous one has ended, and waits. A kernel's time
// runs from its start, or from the end of the earlier kernels if that is later, to its end.
StepTable step_table(const Activity& activity, int64_t from_ns, int64_t to_ns, int64_t steps);

// Gives rows their costs. The rows of one op, which may have been launched as several instances of its
// kernel, become one, under the name of the longest. An op whose launches differ from the declared ones gets
// no cost, and a note.
void add_costs(StepTable& table, const std::vector<DeclaredCost>& costs);

// The phases of a batch of prompts. Prefill counts as one step, until all sequences have their first token;
// each decode step adds one token to every sequence.
struct BatchSteps {
  StepTable prefill, decode;
};

// What one GPU did of it.
Activity on_gpu(Activity all, int ordinal);

// A step ends with the copy of its tokens to the host. The host sees it a little later, by a clock that may
// be some microseconds off, so each phase ends with the copy whose end is nearest to the time at which the
// host saw it. `start_ns`: the batch was submitted; `begun_ns`: the last first token arrived; `last_ns`: the
// last token of a step with all sequences arrived. All on the clock of `activity`. Without decoding, begun_ns
// and last_ns are equal.
BatchSteps batch_steps(const Activity& activity, int64_t start_ns, int64_t begun_ns, int64_t last_ns);

// A header, a row for each kernel, one for the gaps and one for the whole step; times in microseconds. Where
// there are costs: also MB (1e6 bytes), the rate that is nearer to its limit (GB/s or TFLOP/s), and its share
// of that limit; "~" marks bytes that are expected for random routing.
std::vector<std::vector<std::string>> cells(const StepTable& table, const StepLimits& limits = {});
nlohmann::json to_json(const StepTable& table);

}  // namespace fathom::profile
