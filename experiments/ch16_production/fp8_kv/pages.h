// The problem: one decode step of gpt-oss's attention, a row for each of S sequences with the same context:
// 64 query heads in groups of 8 over a paged cache of 8 key-value heads of 64 numbers, with sinks
// (kernels/attention.h has the formula, kernels/kv_tiles.h the cache). The cache is there twice, in bf16 and
// in FP8, with the same numbers: those that FP8 holds, and bf16 holds them exactly. So both variants have one
// answer.
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

namespace fathom::lab::fp8_kv {

inline constexpr int kHeads = 64, kKvHeads = 8, kGroup = kHeads / kKvHeads;
inline constexpr int kHeadDim = kernels::kHeadDim, kPage = kernels::kTile;
inline constexpr float kScale = 0.125f;  // 1 / sqrt(kHeadDim)

// Of a page and a key-value head, in bf16.
inline constexpr int64_t kTileBytes = 2 * kernels::KvTiles::kElements * int64_t{sizeof(bf16)};

struct Pages {
  int64_t context, window;           // window 0: none
  View<const bf16, 3> q;             // S x kHeads x kHeadDim
  View<const int32_t, 2> pages;      // S x pages of a sequence, in any order
  View<const uint8_t, 1> cache;      // all pages in bf16, then all of them in FP8
  View<const float, 1> sinks;        // kHeads
  View<const int32_t, 1> positions;  // S: context - 1 each
  View<const int32_t, 1> sequence;   // S: row s is sequence s's
  View<bf16, 3> out;                 // S x kHeads x kHeadDim

  Pages(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  // The ops take a cache that one may write.
  FATHOM_HD kernels::KvTiles in_bf16() const {
    return {reinterpret_cast<bf16*>(const_cast<uint8_t*>(cache.data())), pages.size(), kKvHeads};
  }
  FATHOM_HD kernels::Fp8KvTiles in_fp8() const {
    return {const_cast<uint8_t*>(cache.data()) + pages.size() * kKvHeads * kTileBytes, pages.size(),
            kKvHeads};
  }
};

FATHOM_CUDA_LAUNCHER void bf16_pages(const Pages& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fp8_pages(const Pages& p, StreamRef stream);

}  // namespace fathom::lab::fp8_kv
