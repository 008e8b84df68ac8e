// Hardware counters of each kernel of a call, by CUPTI's Range Profiler (machine/range_profiler.h), which
// replays every kernel until all passes of the metric set are made. Not for kernels that wait for each other,
// for other GPUs or for the host: a replayed kernel would wait forever. A build without CUDA returns an
// error.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "profile/metrics.h"

namespace fathom::profile {

// Counters of one kernel, by the names of profile/metrics.h.
using KernelCounters = std::map<std::string, double>;

struct CounterRun {
  std::vector<KernelCounters> kernels;  // in the order of their launches
  int passes = 0;
  std::vector<std::string> notes;
};

// Runs `call` once on the current GPU, with its kernels slow and serialised. `max_kernels`: the most that it
// launches; further ones are noted as lost. An error says why this GPU's counters cannot be read. Exceptions
// of `call` pass through.
Result<CounterRun> count_kernels(const CounterChoice& choice, size_t max_kernels,
                                 const std::function<void()>& call);

// Empty where counters can be read, otherwise the reason. Asks the driver and runs no kernel.
std::string why_no_counters();

}  // namespace fathom::profile
