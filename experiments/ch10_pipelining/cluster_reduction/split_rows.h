// RMSNorm of rows that are split over the blocks of a cluster: block c of a row has the c-th slice.
#pragma once

#include "experiments/ch10_pipelining/rms_norm.h"

namespace fathom::lab::cluster_reduction {

inline constexpr int kThreads   = 256;
inline constexpr int kMaxSlice  = 51200;  // numbers: 200 KiB of shared memory
inline constexpr int kMaxBlocks = 8;      // of a cluster

struct SplitRows : RmsNorm {
  int64_t cluster;         // blocks for each row: 1, 2, 4 or 8
  View<float, 2> partial;  // workspace, rows x cluster: the sum of squares of each slice

  SplitRows(const Point& at, Arena& arena);
  // Numbers of a slice, a multiple of 4; the last slices of a row may be shorter, or empty.
  int64_t slice() const { return (width() / 4 + cluster - 1) / cluster * 4; }
};

FATHOM_CUDA_LAUNCHER void two_kernels(const SplitRows& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void through_global(const SplitRows& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void through_dsmem(const SplitRows& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void dsmem_broadcast(const SplitRows& p, StreamRef stream);

}  // namespace fathom::lab::cluster_reduction
