// The problem: gpt-oss's attention over a prompt of T tokens. It is causal, has sinks, and may have a window
// (window_attention_gpu).
// 64 query heads in groups of 8 share a paged cache of 8 key-value heads of 64 dimensions in bf16.
// kernels/attention/attention.h has the formula, kernels/attention/paged_kv_cache.h the cache.
#pragma once

#include <functional>

#include "experiments/paged_attention.h"

namespace fathom::lab::flash_attention_gpu {

using paged_attention::kGroup, paged_attention::kHeadDim, paged_attention::kHeads, paged_attention::kKvHeads,
    paged_attention::kPage, paged_attention::kScale;

inline constexpr int64_t kMaxScoredTokens = 2048;  // the longest prompt of scores_in_memory

struct PromptAttention {
  int64_t window;                    // 0: none
  View<const bf16, 3> q;             // T x kHeads x kHeadDim
  View<const bf16, 5> tiles;         // pages x kKvHeads x (keys, values) x kPage x kHeadDim, swizzled
  View<const int32_t, 2> pages;      // 1 x pages of the prompt, in any order
  View<const float, 1> sinks;        // kHeads
  View<const int32_t, 1> positions;  // T: 0, 1, ...
  View<const int32_t, 2> row_tiles;  // tiles of 64 rows, as kernels::PrefillTile
  View<bf16, 3> out;                 // T x kHeads x kHeadDim
  // Workspace of scores_in_memory. Rows of scores and weights begin at multiples of 8.
  View<bf16, 4> gathered;  // (keys, values) x kKvHeads x T x kHeadDim
  View<float, 3> scores;   // of one key-value head: kGroup x T x T
  View<bf16, 3> weights;   // the same

  PromptAttention(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  int64_t tokens() const { return q.extent(0); }
  FATHOM_HD kernels::Bf16KvPages kv() const {  // Bf16KvPages is writable; variants only read
    return {const_cast<bf16*>(tiles.data()), tiles.extent(0), kKvHeads};
  }
};

FATHOM_CUDA_LAUNCHER std::function<void(const PromptAttention&, StreamRef)> scores_in_memory(
    const PromptAttention&, StreamRef);
FATHOM_CUDA_LAUNCHER void wgmma(const PromptAttention& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tma_ring(const PromptAttention& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void shared_pages(const PromptAttention& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void overlapped(const PromptAttention& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void unified_max(const PromptAttention& p, StreamRef stream);

}  // namespace fathom::lab::flash_attention_gpu
