// The KV cache of all layers in device memory, in pages of 64 positions (kernels/attention/paged_kv_cache.h).
// The caller assigns pages to sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device_buffer.h"
#include "kernels/attention/paged_kv_cache.h"
#include "model/config.h"

namespace fathom::model {

enum class KvFormat { bf16, fp8 };

class GpuKvCache {
 public:
  // Full-attention and sliding-window layers have separate numbers of pages. Throws NotEnoughMemory.
  GpuKvCache(const Config& config, int64_t full_pages, int64_t window_pages, KvFormat format,
             Device& device) {
    for (const Attention kind : config.layers) {
      const int64_t pages = kind == Attention::sliding ? window_pages : full_pages;
      const int64_t heads = config.num_key_value_heads;
      memory_.emplace_back(device, pages * page_bytes(config, format));
      uint8_t* tiles = memory_.back().data();
      // Attention multiplies unwritten positions by zero, so they must not be NaN.
      device.set_words(tiles, memory_.back().bytes(), 0);
      if (format == KvFormat::fp8)
        layers_.push_back(kernels::Fp8KvPages{tiles, pages, heads});
      else
        layers_.push_back(kernels::Bf16KvPages{reinterpret_cast<bf16*>(tiles), pages, heads});
    }
  }

  const kernels::KvLayer& layer(size_t l) const { return layers_[l]; }

  // Bytes of one page of one layer.
  static int64_t page_bytes(const Config& config, KvFormat format) {
    constexpr int64_t kBf16 = 2 * kernels::Bf16KvPages::kElements * int64_t{sizeof(bf16)};
    return config.num_key_value_heads * (format == KvFormat::fp8 ? kernels::Fp8KvPages::kPageBytes : kBf16);
  }

 private:
  std::vector<DeviceBuffer<uint8_t>> memory_;
  std::vector<kernels::KvLayer> layers_;
};

}  // namespace fathom::model
