// Hardware counters of each kernel of a call, by CUPTI's Range Profiler: every kernel is a range of its own,
// and is replayed, its memory restored in between, until all passes of the metric set are made. Not for
// kernels that wait for each other, for other GPUs or for the host: a replayed one waits for ever. A build
// without CUDA counts nothing and says so.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "profile/metrics.h"

namespace fathom::profile {

// Of one kernel, by the names of profile/metrics.h.
using KernelCounters = std::map<std::string, double>;

struct CounterRun {
  std::vector<KernelCounters> kernels;  // in the order of their launches
  int passes = 0;
  std::vector<std::string> notes;
};

// Runs `call` once on the current device; its launches are slow and one at a time. `most_kernels`: how many
// it launches at most; more are noted as lost. An error says why this GPU's counters cannot be read. What
// `call` throws passes through.
Result<CounterRun> count_kernels(MetricSet set, size_t most_kernels, const std::function<void()>& call);

// Empty where counters can be read, else why not: asks the driver, runs nothing.
std::string why_no_counters();

}  // namespace fathom::profile
