// What a call did on GPUs, as CUPTI's Activity API saw it: kernels, copies, and the host's calls that asked
// for them. A build without CUDA sees nothing and says so.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "lab/profiler.h"

namespace fathom::profile {

struct CopyRecord {
  std::string name;  // "copy host to device", "set"
  int64_t bytes    = 0;
  int64_t start_ns = 0, end_ns = 0;
  int device           = 0;
  uint32_t stream      = 0;
  uint32_t correlation = 0;
};

struct HostCall {
  std::string name;          // "cudaLaunchKernel"
  bool driver      = false;  // of the driver's API; else of the runtime's
  int64_t start_ns = 0, end_ns = 0;
  uint32_t thread      = 0;  // of the system
  uint32_t correlation = 0;
};

struct Gpu {
  std::string name;            // "NVIDIA H200"
  int compute_capability = 0;  // 90
};

// All times on one clock. Kernels carry their occupancy where the chip is known.
struct Activity {
  int64_t start_ns = 0, end_ns = 0;        // of the call, until the GPU was idle
  std::vector<lab::KernelRecord> kernels;  // these three by their starts
  std::vector<CopyRecord> copies;
  std::vector<HostCall> host_calls;
  std::map<int, Gpu> gpus;         // by ordinal
  std::vector<std::string> notes;  // records that were lost, and the like
};

// Records what GPUs do, from when it is opened. CUPTI sees the kernels of a graph only where it was there
// when the graph was made: whoever launches graphs makes them while this lives.
class ActivityWatch {
 public:
  // One at a time. An error names who or what forbids it.
  static Result<std::unique_ptr<ActivityWatch>> open();
  virtual ~ActivityWatch() = default;

  // Runs `call` once, waits until the current GPU is idle, and returns what happened in between. What `call`
  // throws passes through.
  virtual Activity watch(const std::function<void()>& call) = 0;
};

// The same for a single call. After an error `call` was not run.
Result<Activity> watch_activity(const std::function<void()>& call);

}  // namespace fathom::profile
