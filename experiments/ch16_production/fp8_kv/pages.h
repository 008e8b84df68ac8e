// The problem: one decode step of gpt-oss's attention, a row for each of S sequences with the same context.
// The cache exists twice, in bf16 and in FP8, with the same numbers: FP8 can represent them, and bf16 does so
// exactly. So both variants have the same result.
#pragma once

#include "experiments/paged_attention.h"

namespace fathom::lab::fp8_kv {

using paged_attention::kHeadDim, paged_attention::kKvHeads, paged_attention::kPage, paged_attention::kScale;

// Of a page and key-value head, in bf16.
inline constexpr int64_t kTileBytes = 2 * kernels::Bf16KvPages::kElements * int64_t{sizeof(bf16)};

struct Pages : paged_attention::DecodeRows {
  View<const uint8_t, 1> cache;  // all pages in bf16, then all of them in FP8

  Pages(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  // The ops' cache types are writable; the op only reads.
  FATHOM_HD kernels::Bf16KvPages in_bf16() const {
    return {reinterpret_cast<bf16*>(const_cast<uint8_t*>(cache.data())), pages.size(), kKvHeads};
  }
  FATHOM_HD kernels::Fp8KvPages in_fp8() const {
    return {const_cast<uint8_t*>(cache.data()) + pages.size() * kKvHeads * kTileBytes, pages.size(),
            kKvHeads};
  }
};

FATHOM_CUDA_LAUNCHER void bf16_pages(const Pages& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fp8_pages(const Pages& p, StreamRef stream);

}  // namespace fathom::lab::fp8_kv
