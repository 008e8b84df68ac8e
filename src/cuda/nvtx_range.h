// NVTX ranges for nsys and ncu (NVTX 3, domain "fathom"): ncu --nvtx-include
// "fathom@ch07/transpose_gpu/padded/" profiles that variant alone. Without such a tool, and in a build
// without CUDA, a range costs one call. A log of our own (cuda/range_log.h) has them in every build.
#pragma once

namespace fathom {

// Lasts until the end of the scope. Ranges of one thread nest.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name);  // copied by the tool
  ~NvtxRange();
  NvtxRange(const NvtxRange&)            = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  bool logged_;  // in cuda/range_log.h
};

}  // namespace fathom
