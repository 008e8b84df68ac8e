// The activity of a call by CUPTI's Activity API: kernels, copies, and the host's API calls that launched
// them. A build without CUDA returns an error.
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
  bool driver      = false;  // of the driver API; otherwise of the runtime API
  int64_t start_ns = 0, end_ns = 0;
  uint32_t thread      = 0;  // the system's thread id
  uint32_t correlation = 0;
};

struct HostRange {  // of NVTX
  std::string name;
  int64_t start_ns = 0, end_ns = 0;
  uint32_t thread = 0;
};

struct Gpu {
  std::string name;            // "NVIDIA H200"
  int compute_capability = 0;  // 90
  int multiprocessors    = 0;
};

// All times on one clock. Kernels carry their occupancy where the chip is known.
struct Activity {
  int64_t start_ns = 0, end_ns = 0;        // of the call, until the GPU was idle
  std::vector<lab::KernelRecord> kernels;  // these are sorted by start
  std::vector<CopyRecord> copies;
  std::vector<HostCall> host_calls;
  std::vector<HostRange> ranges = {};
  std::map<int, Gpu> gpus;         // by ordinal
  std::vector<std::string> notes;  // records that were lost, and the like
};

// Records GPU activity while it lives. CUPTI sees the kernels of a graph only if the graph is instantiated
// while CUPTI is active, so graphs must be made after open().
class ActivityWatch {
 public:
  // One at a time. An error names the cause.
  static Result<std::unique_ptr<ActivityWatch>> open();
  virtual ~ActivityWatch() = default;

  // Runs `call` once, waits until the current GPU is idle, and returns the activity in between. Exceptions of
  // `call` pass through.
  virtual Activity watch(const std::function<void()>& call) = 0;
};

// The same for a single call. On an error, `call` was not run.
Result<Activity> watch_activity(const std::function<void()>& call);

}  // namespace fathom::profile
