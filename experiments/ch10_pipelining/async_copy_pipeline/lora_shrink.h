// The first product of a LoRA adapter ("shrink"): out = x a, fp32. x is long and read once; a is small and
// read by every block. A block takes 128 tokens and walks over the width in steps of 32.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::async_copy_pipeline {

struct LoraShrink {
  static constexpr int kRank = 16, kFewestStages = 2, kMostStages = 4;

  int64_t stages;          // of a pipeline; `plain` and the library have none
  View<const float, 2> x;  // tokens x width, a multiple of 4
  View<const float, 2> a;  // width x kRank
  View<float, 2> out;      // tokens x kRank

  LoraShrink(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t t, int64_t r) const;
};

FATHOM_CUDA_LAUNCHER void plain(const LoraShrink& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void software_pipeline(const LoraShrink& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void cuda_pipeline(const LoraShrink& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void mbarrier_ring(const LoraShrink& p, StreamRef stream);

}  // namespace fathom::lab::async_copy_pipeline
