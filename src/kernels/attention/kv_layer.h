// One layer of the paged KV cache on a GPU, in any of its formats: paged_kv_cache.h, fp4_kv_pages.h.
#pragma once

#include <cstdint>
#include <variant>

#include "core/dtype.h"
#include "kernels/attention/fp4_kv_pages.h"
#include "kernels/attention/paged_kv_cache.h"

namespace fathom::kernels {

// Keys and values in bf16, or FP8; k8v4: FP8 keys, values of 4 bits; nvfp4: both of 4 bits.
enum class KvFormat { bf16, fp8, k8v4, nvfp4 };

using KvLayer = std::variant<Bf16KvPages, Fp8KvPages, K8V4KvPages, Nvfp4KvPages>;

// A cache of that many pages in the memory at `at`, on the device or the host.
inline KvLayer kv_layer(KvFormat format, uint8_t* at, int64_t pages, int64_t heads) {
  switch (format) {
    case KvFormat::bf16:
      break;
    case KvFormat::fp8:
      return Fp8KvPages{at, pages, heads};
    case KvFormat::k8v4:
      return K8V4KvPages{at, pages, heads};
    case KvFormat::nvfp4:
      return Nvfp4KvPages{at, pages, heads};
  }
  return Bf16KvPages{reinterpret_cast<bf16*>(at), pages, heads};
}

// Bytes of a position of one head: its key and its value, with their scales.
inline int64_t kv_position_bytes(KvFormat format) {
  switch (format) {
    case KvFormat::bf16:
      break;
    case KvFormat::fp8:
      return Fp8KvPages::kPageBytes / kTile;
    case KvFormat::k8v4:
      return K8V4KvPages::kPositionBytes;
    case KvFormat::nvfp4:
      return Nvfp4KvPages::kPositionBytes;
  }
  return 2 * kHeadDim * int64_t{sizeof(bf16)};
}

}  // namespace fathom::kernels
