// The problem: one decode step of gpt-oss's attention, a row for each of S sequences with the same context,
// over a bf16 cache. The same keys and values lie in memory four times: without pages, and in pages of 16, 64
// and 256 positions. A tile of a head has rows of 128 bytes, swizzled as Bf16KvPages says (kernels/attention/
// paged_kv_cache.h):
//   dense    [S][heads][keys, values][positions][64]
//   pages    [pages][heads][keys, values][positions of a page][64]
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "experiments/paged_attention.h"

namespace fathom::lab::paged_tiles {

using paged_attention::kGroup, paged_attention::kHeadDim, paged_attention::kHeads, paged_attention::kKvHeads,
    paged_attention::kScale;

inline constexpr int kLayouts             = 4;
inline constexpr int kPageSizes[kLayouts] = {0, 16, 64, 256};  // 0: dense
inline constexpr int64_t kContextUnit     = 256;               // rows of a sequence are padded to whole pages

struct Step {
  int64_t context, padded;           // positions of a sequence; those that it has room for
  View<const bf16, 3> q;             // S x kHeads x kHeadDim
  View<const float, 1> sinks;        // kHeads
  View<const int32_t, 1> positions;  // S: context - 1 each
  View<const int32_t, 1> sequence;   // S
  View<const int32_t, 2> pages_of_16, pages_of_64, pages_of_256;  // S x padded / size
  View<const bf16, 2> cache;                                      // kLayouts x numbers
  View<bf16, 3> out;                                              // S x kHeads x kHeadDim

  Step(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  FATHOM_HD int64_t sequences() const { return q.extent(0); }
  kernels::Bf16KvPages in_pages_of_64() const {
    return {const_cast<bf16*>(&cache(2, 0)), pages_of_64.size(), kKvHeads};
  }
};

FATHOM_CUDA_LAUNCHER void dense(const Step& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void pages_of_16(const Step& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void pages_of_64(const Step& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void pages_of_256(const Step& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void engine_op(const Step& p, StreamRef stream);

}  // namespace fathom::lab::paged_tiles
