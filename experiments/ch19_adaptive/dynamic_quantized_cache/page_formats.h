// Which pages of a sequence are kept in which format when the cache must not take more than a number of
// bytes.
//
// Precision is spent where attention looks most: at the newest positions. Pages go down the ladder bf16, FP8,
// NVFP4 from the oldest on, as few as suffice, and never come back up: what rounding has taken is gone. The
// newest page is not full, takes a position at each step, and stays in bf16.
#pragma once

#include <cstdint>

#include "kernels/attention/fp4_kv_pages.h"
#include "kernels/attention/paged_kv_cache.h"

namespace fathom::lab::dynamic_quantized_cache {

// Bytes of a page and key-value head.
inline constexpr int64_t kBf16Bytes = 2 * kernels::Bf16KvPages::kElements * int64_t{sizeof(bf16)},
                         kFp8Bytes  = kernels::Fp8KvPages::kPageBytes,
                         kFp4Bytes  = kernels::Nvfp4KvPages::kPageBytes;

// Pages of a sequence: the oldest ones in NVFP4, the next in FP8, the rest in bf16.
struct PageFormats {
  int64_t fp4 = 0, fp8 = 0, in_bf16 = 0;

  int64_t bytes() const { return fp4 * kFp4Bytes + fp8 * kFp8Bytes + in_bf16 * kBf16Bytes; }
};

// For `pages` pages in at most `budget` bytes a key-value head. Where not even that suffices, all but the
// newest page are in NVFP4.
inline PageFormats page_formats(int64_t pages, int64_t budget) {
  PageFormats formats{.in_bf16 = pages};
  const auto over     = [&] { return formats.bytes() - budget; };
  const auto as_many  = [](int64_t bytes, int64_t gain) { return bytes > 0 ? (bytes + gain - 1) / gain : 0; };
  const int64_t older = pages > 0 ? pages - 1 : 0;

  const int64_t down    = as_many(over(), kBf16Bytes - kFp8Bytes);
  formats.fp8           = down < older ? down : older;
  formats.in_bf16       = pages - formats.fp8;
  const int64_t further = as_many(over(), kFp8Bytes - kFp4Bytes);
  formats.fp4           = further < formats.fp8 ? further : formats.fp8;
  formats.fp8 -= formats.fp4;
  return formats;
}

}  // namespace fathom::lab::dynamic_quantized_cache
