// The problem: one decode step of gpt-oss's attention, a row for each of S sequences with the same context:
// 64 query heads in groups of 8 over a paged cache of 8 key-value heads of 64 numbers in bf16, with sinks and
// with or without a window (kernels/attention.h has the formula, kernels/kv_tiles.h the cache).
#pragma once

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/kv_tiles.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Checker;
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::decode_attention_gpu {

inline constexpr int kHeads = 64, kKvHeads = 8, kGroup = kHeads / kKvHeads;
inline constexpr int kHeadDim = kernels::kHeadDim, kPage = kernels::kTile;
inline constexpr float kScale = 0.125f;  // 1 / sqrt(kHeadDim)

struct DecodeAttention {
  int64_t context, window;           // window 0: none
  View<const bf16, 3> q;             // S x kHeads x kHeadDim
  View<const bf16, 5> tiles;         // pages x kKvHeads x (keys, values) x kPage x kHeadDim, pieces swizzled
  View<const int32_t, 2> pages;      // S x pages of a sequence, in any order
  View<const float, 1> sinks;        // kHeads
  View<const int32_t, 1> positions;  // S: context - 1 each
  View<const int32_t, 1> sequence;   // S: row s is sequence s's
  View<bf16, 3> out;                 // S x kHeads x kHeadDim
  // Workspace of split_kv, for each piece of a row and head: the sums of its values and, as they go with
  // those, the largest score and the sum of weights.
  View<float, 4> piece_out;       // S x kHeads x pieces x kHeadDim
  View<float, 4> piece_most_sum;  // S x kHeads x pieces x 2

  DecodeAttention(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  FATHOM_HD kernels::KvTiles kv() const {  // the cache is one that other ops write
    return {const_cast<bf16*>(tiles.data()), tiles.extent(0), kKvHeads};
  }
};

FATHOM_CUDA_LAUNCHER void head_by_head(const DecodeAttention& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void grouped(const DecodeAttention& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void split_kv(const DecodeAttention& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tensor_cores(const DecodeAttention& p, StreamRef stream);

}  // namespace fathom::lab::decode_attention_gpu
