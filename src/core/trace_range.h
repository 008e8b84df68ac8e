// Named spans of the host's time, for nsys and ncu (NVTX 3, domain "fathom"): ncu --nvtx-include
// "fathom@ch07/transpose_gpu/padded/" profiles that variant alone. Without such a tool, and in a build
// without CUDA, a range costs a call.
#pragma once

namespace fathom {

// From here to the end of the scope. Ranges of one thread nest.
class TraceRange {
 public:
  explicit TraceRange(const char* name);  // copied by the tool
  ~TraceRange();
  TraceRange(const TraceRange&)            = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace fathom
