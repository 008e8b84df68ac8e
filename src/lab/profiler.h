// The lab's interface to a profiler, which observes one call of a variant in a pass of its own. profile/
// implements it, cli passes it in. Used only after all timing of a process: tools that attach to CUDA leave
// hooks behind that make launches slower.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "lab/experiment_info.h"
#include "lab/point.h"
#include "lab/problem.h"
#include "lab/record.h"

namespace fathom::lab {

// One kernel that ran.
struct KernelRecord {
  std::string name;  // as in its source, with template arguments, without parameters
  std::array<int64_t, 3> grid{1, 1, 1}, block{1, 1, 1}, cluster{1, 1, 1};  // x, y, z
  int registers          = 0;                                              // a thread
  int64_t static_shared  = 0;                                              // bytes a block
  int64_t dynamic_shared = 0;
  int64_t local          = 0;        // bytes a thread: spills, and arrays that do not fit in registers
  int64_t start_ns = 0, end_ns = 0;  // on the clock of the whole profile; both 0 where unknown
  int device           = 0;          // CUDA's ordinal
  uint32_t stream      = 0;          // CUPTI's number
  uint32_t correlation = 0;          // the same as of the host's call that launched it
  // Theoretical: share of a multiprocessor's warps. Absent for a chip whose limits are not known.
  std::optional<double> occupancy;
  std::string limiter;                     // of that: "registers", "warps", "registers and shared memory"
  std::map<std::string, double> counters;  // by the names of profile/metrics.h; empty where none were read

  int64_t threads() const { return block[0] * block[1] * block[2]; }
  int64_t blocks() const { return grid[0] * grid[1] * grid[2]; }
};

// The call to profile.
struct Profiled {
  std::string experiment, variant;  // ids
  Point at;
  Cost cost;  // of one call
  Backend backend = Backend::cuda;
};

struct Profile {
  std::vector<KernelRecord> kernels;  // of one call, in the order they started
  std::map<std::string, Metric>
      metrics;                     // of the call, for its record: kernels, kernel_time_ns, registers, ...
  std::vector<std::string> notes;  // what is missing and why, a sentence each
};

class Profiler {
 public:
  virtual ~Profiler() = default;
  // Runs `call`, which returns when the GPU is idle again, as often as it needs. Kernels may be replayed, and
  // a CPU's call repeated, so the outputs of these calls mean nothing. An error: nothing could be observed.
  // Exceptions of `call` pass through.
  virtual Result<Profile> profile(const Profiled& what, const std::function<void()>& call) = 0;
};

}  // namespace fathom::lab
