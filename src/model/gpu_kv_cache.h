// The keys and values of every layer in device memory, in pages of 64 positions (kernels/kv_tiles.h). Which
// page is whose is the caller's affair.
#pragma once

#include <cstdint>
#include <vector>

#include "core/device_buffer.h"
#include "kernels/kv_tiles.h"
#include "model/config.h"

namespace fathom::model {

class GpuKvCache {
 public:
  // Layers that see all and layers that see a window back have numbers of pages of their own. Throws
  // NotEnoughMemory.
  GpuKvCache(const Config& config, int64_t full_pages, int64_t window_pages, Device& device) {
    for (const Attention kind : config.layers) {
      const int64_t pages = kind == Attention::sliding ? window_pages : full_pages;
      memory_.emplace_back(device, pages * page_elements(config));
      // What was never written is multiplied by zero, which must not make a NaN of it.
      device.set_words(memory_.back().data(), memory_.back().bytes(), 0);
      layers_.push_back(
          {.tiles = memory_.back().data(), .pages = pages, .heads = config.num_key_value_heads});
    }
  }

  const kernels::KvTiles& layer(size_t l) const { return layers_[l]; }

  // Of one page in one layer.
  static int64_t page_bytes(const Config& config) { return 2 * page_elements(config); }

 private:
  static int64_t page_elements(const Config& config) {
    return config.num_key_value_heads * 2 * kernels::KvTiles::kElements;
  }

  std::vector<DeviceBuffer<bf16>> memory_;
  std::vector<kernels::KvTiles> layers_;
};

}  // namespace fathom::model
