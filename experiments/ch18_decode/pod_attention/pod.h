// The problem: one layer's attention of a step that has a new prompt of T tokens and a decoding row for each
// of S sequences, over one cache (experiments/paged_attention.h).
#pragma once

#include "experiments/paged_attention.h"

namespace fathom::lab::pod_attention {

using paged_attention::kGroup, paged_attention::kHeadDim, paged_attention::kHeads, paged_attention::kKvHeads,
    paged_attention::kPage, paged_attention::kScale;

// Places for the numbers of multiprocessors.
inline constexpr int kMultiprocessors = 512;

struct Pod : paged_attention::DecodeRows {  // the decoding rows; their cache lies in the first pages
  int64_t tokens;
  View<const bf16, 3> prompt_q;         // T x kHeads x kHeadDim
  View<const int32_t, 2> prompt_pages;  // 1 x pages of the prompt
  View<const bf16, 5> tiles;            // pages x kKvHeads x (keys, values) x kPage x kHeadDim, swizzled
  View<bf16, 3> prompt_out;             // T x kHeads x kHeadDim
  // Of sm_aware: the next prompt unit, the next decoding unit, and the tickets of each multiprocessor.
  View<int32_t, 1> tickets;
  // Of engine_ops.
  View<const int32_t, 2> prompt_tiles;      // of 64 rows: first row, rows, sequence
  View<const int32_t, 1> prompt_positions;  // T

  Pod(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  FATHOM_HD kernels::Bf16KvPages kv() const {  // Bf16KvPages is writable; variants only read
    return {const_cast<bf16*>(tiles.data()), tiles.extent(0), kKvHeads};
  }
};

FATHOM_CUDA_LAUNCHER void one_after_another(const Pod& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void interleaved(const Pod& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void sm_aware(const Pod& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void engine_ops(const Pod& p, StreamRef stream);

}  // namespace fathom::lab::pod_attention
