// The keys and values of every layer in device memory, in pages of 64 positions (kernels/kv_tiles.h). Which
// page is whose is the caller's affair.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device_buffer.h"
#include "kernels/kv_tiles.h"
#include "model/config.h"

namespace fathom::model {

enum class KvFormat { bf16, fp8 };

class GpuKvCache {
 public:
  // Layers that see all and layers that see a window back have numbers of pages of their own. Throws
  // NotEnoughMemory.
  GpuKvCache(const Config& config, int64_t full_pages, int64_t window_pages, KvFormat format,
             Device& device) {
    for (const Attention kind : config.layers) {
      const int64_t pages = kind == Attention::sliding ? window_pages : full_pages;
      const int64_t heads = config.num_key_value_heads;
      memory_.emplace_back(device, pages * page_bytes(config, format));
      uint8_t* tiles = memory_.back().data();
      // What was never written is multiplied by zero, which must not make a NaN of it.
      device.set_words(tiles, memory_.back().bytes(), 0);
      if (format == KvFormat::fp8)
        layers_.push_back(kernels::Fp8KvTiles{tiles, pages, heads});
      else
        layers_.push_back(kernels::KvTiles{reinterpret_cast<bf16*>(tiles), pages, heads});
    }
  }

  const kernels::KvLayer& layer(size_t l) const { return layers_[l]; }

  // Of one page in one layer.
  static int64_t page_bytes(const Config& config, KvFormat format) {
    constexpr int64_t kBf16 = 2 * kernels::KvTiles::kElements * int64_t{sizeof(bf16)};
    return config.num_key_value_heads * (format == KvFormat::fp8 ? kernels::Fp8KvTiles::kPageBytes : kBf16);
  }

 private:
  std::vector<DeviceBuffer<uint8_t>> memory_;
  std::vector<kernels::KvLayer> layers_;
};

}  // namespace fathom::model
