// Clips gradients by their global norm: out = in * min(1, kMaxNorm / |in|). Every element depends on all
// others, so there are two phases with a wait of all blocks for all between them.
#pragma once

#include <cstdint>

#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::grid_sync {

inline constexpr float kMaxNorm     = 1;
inline constexpr int64_t kMaxBlocks = 4096;  // of any grid

struct Clip {
  View<const float, 1> in;
  View<float, 1> out;
  View<float, 1> partial;  // workspace, kMaxBlocks: each block's sum of squares
  View<float, 1> scale;    // workspace, 1

  Clip(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void two_kernels(const Clip& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void last_block(const Clip& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void cooperative(const Clip& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void one_cluster(const Clip& p, StreamRef stream);

}  // namespace fathom::lab::grid_sync
