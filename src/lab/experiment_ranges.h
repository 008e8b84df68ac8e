// NVTX ranges of an experiment, one for each part of its id, so that they nest as `ncu --nvtx-include
// "fathom@ch07/transpose_gpu/padded/"` expects: range ch07, in it transpose_gpu, in it the variant's.
//
// A variant's range is open around the samples of its turn, and the clock is read inside it: opening and
// closing a range is never in a measured time. Preparing, poisoning and checking are outside, so that a
// profiler's kernels of a variant are the variant's own.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cuda/nvtx_range.h"

namespace fathom::lab {

class ExperimentRanges {
 public:
  explicit ExperimentRanges(const std::string& id) {
    for (size_t begin = 0; begin <= id.size();) {
      const size_t end = std::min(id.find('/', begin), id.size());
      open_.push_back(std::make_unique<NvtxRange>(id.substr(begin, end - begin).c_str()));
      begin = end + 1;
    }
  }
  // NVTX closes the range opened last.
  ~ExperimentRanges() {
    while (!open_.empty()) open_.pop_back();
  }
  ExperimentRanges(const ExperimentRanges&)            = delete;
  ExperimentRanges& operator=(const ExperimentRanges&) = delete;

 private:
  std::vector<std::unique_ptr<NvtxRange>> open_;
};

}  // namespace fathom::lab
