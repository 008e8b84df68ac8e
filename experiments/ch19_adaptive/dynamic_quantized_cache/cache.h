// The problem: one decode step of gpt-oss's attention, a row for each of S sequences with the same context,
// over a cache that must not take more than `budget` percent of its bytes in bf16.
//
// The cache exists three times: in bf16, in FP8 rounded from that, and in NVFP4 rounded from FP8, the way
// that pages go under pressure. A page has the same number in each. A variant reads each page in one format;
// `formats` says which the budget allows.
#pragma once

#include <algorithm>

#include "experiments/paged_attention.h"
#include "kernels/attention/fp4_kv_pages.h"
#include "page_formats.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::dynamic_quantized_cache {

using paged_attention::kGroup, paged_attention::kHeadDim, paged_attention::kHeads, paged_attention::kKvHeads,
    paged_attention::kPage, paged_attention::kScale;

struct MixedCache : paged_attention::DecodeRows {
  // Whether the numbers are ones that NVFP4 has, and all formats hold the same: then one reference proves all
  // variants. Otherwise the errors of a variant are those of the formats that it reads.
  bool same_numbers;
  PageFormats formats;            // of a sequence
  View<const uint8_t, 1> memory;  // all pages in bf16, then in FP8, then in NVFP4
  // What `requantizing` makes anew in a call: for each of moved_pages(), its heads in FP8, then in NVFP4.
  View<uint8_t, 2> moved;

  MixedCache(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
  void metrics(CallMetrics& metrics) const;

  // A sequence fills a page in 64 steps, and then one of its pages goes from bf16 to FP8 and one from FP8 to
  // NVFP4.
  int64_t moved_pages() const { return (q.extent(0) + kPage - 1) / kPage; }
  // Of the first sequence, which stands for all: where the page-th ones come from, if it has as many pages.
  struct Move {
    int64_t bf16, fp8;  // the oldest page in bf16 goes to FP8, the oldest in FP8 to NVFP4
  };
  Move moves(int64_t page) const {
    const int64_t last = pages.extent(1) - 1;
    return {std::min(formats.fp4 + formats.fp8 + page, last), std::min(formats.fp4 + page, last)};
  }

  // The ops' cache types are writable; attention only reads.
  FATHOM_HD kernels::Bf16KvPages in_bf16() const {
    return {reinterpret_cast<bf16*>(const_cast<uint8_t*>(memory.data())), pages.size(), kKvHeads};
  }
  FATHOM_HD kernels::Fp8KvPages in_fp8() const {
    return {const_cast<uint8_t*>(memory.data()) + pages.size() * kKvHeads * kBf16Bytes, pages.size(),
            kKvHeads};
  }
  FATHOM_HD kernels::Nvfp4KvPages in_fp4() const {
    return {const_cast<uint8_t*>(memory.data()) + pages.size() * kKvHeads * (kBf16Bytes + kFp8Bytes),
            pages.size(), kKvHeads};
  }
};

FATHOM_CUDA_LAUNCHER void all_bf16(const MixedCache& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void all_fp8(const MixedCache& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void all_nvfp4(const MixedCache& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void mixed(const MixedCache& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void requantizing(const MixedCache& p, StreamRef stream);

}  // namespace fathom::lab::dynamic_quantized_cache
