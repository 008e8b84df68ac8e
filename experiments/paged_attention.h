// gpt-oss's attention over a paged cache, for the GPU experiments of several chapters: 64 query heads in
// groups of 8 over 8 key-value heads of 64 numbers, with sinks and with or without a window
// (kernels/attention/attention.h has the formula, kernels/attention/paged_kv_cache.h the cache).
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/attention/paged_kv_cache.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::paged_attention {

inline constexpr int kHeads = 64, kKvHeads = 8, kGroup = kHeads / kKvHeads;
inline constexpr int kHeadDim = kernels::kHeadDim, kPage = kernels::kTile;
inline constexpr float kScale = 0.125f;  // 1 / sqrt(kHeadDim)

constexpr int64_t pages_for(int64_t positions) { return (positions + kPage - 1) / kPage; }

// One decode step: a row for each of S sequences with the same context. Definitions:
// paged_attention_problem.h.
struct DecodeRows {
  int64_t context, window;           // window 0: none
  View<const bf16, 3> q;             // S x kHeads x kHeadDim
  View<const int32_t, 2> pages;      // S x pages of a sequence, in any order
  View<const float, 1> sinks;        // kHeads
  View<const int32_t, 1> positions;  // S: context - 1 each
  View<const int32_t, 1> sequence;   // S: row s is sequence s's
  View<bf16, 3> out;                 // S x kHeads x kHeadDim

  DecodeRows(const Point& at, Arena& arena);
  // The cost when `bytes` of the cache are read for each position in a row's reach.
  Cost cost_of_reading(int64_t bytes) const;
  void check_over(const kernels::Bf16KvPages& kv, Checker& checker) const;

  int64_t reach() const { return window > 0 && window < context ? window : context; }
  kernels::PagedRows rows() const { return {.positions = positions, .sequence = sequence, .pages = pages}; }
};

}  // namespace fathom::lab::paged_attention
