// The problem: one decode step of gpt-oss's attention, a row for each of S sequences with the same context.
// The cache exists four times with the same numbers: those of 4 bits. The other formats can represent these
// exactly, with the scales that go with them, so that all variants have the same result. What rounding costs
// is not this problem's question (models/tiny/README.md).
#pragma once

#include "experiments/paged_attention.h"
#include "kernels/attention/fp4_kv_pages.h"

namespace fathom::lab::kv_compression {

using paged_attention::kHeadDim, paged_attention::kKvHeads, paged_attention::kPage, paged_attention::kScale;

// Bytes of a page and key-value head.
inline constexpr int64_t kBf16Bytes = 2 * kernels::Bf16KvPages::kElements * int64_t{sizeof(bf16)},
                         kFp8Bytes  = kernels::Fp8KvPages::kPageBytes,
                         kK8V4Bytes = kernels::K8V4KvPages::kPageBytes,
                         kFp4Bytes  = kernels::Nvfp4KvPages::kPageBytes,
                         kAllBytes  = kBf16Bytes + kFp8Bytes + kK8V4Bytes + kFp4Bytes;

struct Pages : paged_attention::DecodeRows {
  View<const uint8_t, 1> cache;  // all pages in bf16, then in FP8, in K8V4, in NVFP4

  Pages(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

  // The ops' cache types are writable; the op only reads.
  uint8_t* behind(int64_t bytes) const {
    return const_cast<uint8_t*>(cache.data()) + pages.size() * kKvHeads * bytes;
  }
  kernels::Bf16KvPages in_bf16() const {
    return {reinterpret_cast<bf16*>(behind(0)), pages.size(), kKvHeads};
  }
  kernels::Fp8KvPages in_fp8() const { return {behind(kBf16Bytes), pages.size(), kKvHeads}; }
  kernels::K8V4KvPages in_k8v4() const { return {behind(kBf16Bytes + kFp8Bytes), pages.size(), kKvHeads}; }
  kernels::Nvfp4KvPages in_nvfp4() const {
    return {behind(kBf16Bytes + kFp8Bytes + kK8V4Bytes), pages.size(), kKvHeads};
  }
};

FATHOM_CUDA_LAUNCHER void bf16_pages(const Pages& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void fp8_pages(const Pages& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void k8v4_pages(const Pages& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void nvfp4_pages(const Pages& p, StreamRef stream);

}  // namespace fathom::lab::kv_compression
