// The KV cache of all layers in device memory, in pages of 64 positions (kernels/attention/paged_kv_cache.h).
// The caller assigns pages to sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "core/expect.h"
#include "cuda/device_buffer.h"
#include "kernels/attention/fp4_kv_pages.h"
#include "kernels/attention/paged_kv_cache.h"
#include "model/config.h"

namespace fathom::model {

// Keys and values in bf16, or FP8; k8v4: FP8 keys, values of 4 bits; nvfp4: both of 4 bits.
enum class KvFormat { bf16, fp8, k8v4, nvfp4 };

class GpuKvCache {
 public:
  // Full-attention and sliding-window layers have separate numbers of pages. The format is bf16 or fp8.
  // Throws NotEnoughMemory.
  GpuKvCache(const Config& config, int64_t full_pages, int64_t window_pages, KvFormat format,
             Device& device) {
    FATHOM_EXPECT(format == KvFormat::bf16 || format == KvFormat::fp8,
                  "the GPU's forward pass has no KV cache of 4 bits yet");
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
    const auto of_head = [format]() -> int64_t {
      switch (format) {
        case KvFormat::bf16:
          return 2 * kernels::Bf16KvPages::kElements * int64_t{sizeof(bf16)};
        case KvFormat::fp8:
          return kernels::Fp8KvPages::kPageBytes;
        case KvFormat::k8v4:
          return kernels::K8V4KvPages::kPageBytes;
        case KvFormat::nvfp4:
          return kernels::Nvfp4KvPages::kPageBytes;
      }
      return 0;
    };
    return config.num_key_value_heads * of_head();
  }

 private:
  std::vector<DeviceBuffer<uint8_t>> memory_;
  std::vector<kernels::KvLayer> layers_;
};

}  // namespace fathom::model
