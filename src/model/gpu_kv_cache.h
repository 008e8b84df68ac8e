// The KV cache of all layers in device memory, in pages of 64 positions (kernels/attention/kv_layer.h). The
// caller assigns pages to sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/device_buffer.h"
#include "kernels/attention/kv_layer.h"
#include "model/config.h"

namespace fathom::model {

using kernels::KvFormat;

// Layers with a sliding window are small and average an error over few positions: where others have 4 bits,
// they are in bf16.
inline KvFormat kv_format_of(Attention kind, KvFormat format) {
  const bool four_bits = format == KvFormat::k8v4 || format == KvFormat::nvfp4;
  return kind == Attention::sliding && four_bits ? KvFormat::bf16 : format;
}
// Bytes of a position of one key-value head of such a layer.
inline int64_t kv_position_bytes(Attention kind, KvFormat format) {
  return kernels::kv_position_bytes(kv_format_of(kind, format));
}

class GpuKvCache {
 public:
  // Full-attention and sliding-window layers have separate numbers of pages. Throws NotEnoughMemory.
  GpuKvCache(const Config& config, int64_t full_pages, int64_t window_pages, KvFormat format,
             Device& device) {
    for (const Attention kind : config.layers) {
      const int64_t pages = kind == Attention::sliding ? window_pages : full_pages;
      page_bytes_.push_back(page_bytes(config, kind, format));
      memory_.emplace_back(device, pages * page_bytes_.back());
      uint8_t* tiles = memory_.back().data();
      // Attention multiplies unwritten positions by zero, so they must not be NaN.
      device.set_words(tiles, memory_.back().bytes(), 0);
      layers_.push_back(
          kernels::kv_layer(kv_format_of(kind, format), tiles, pages, config.num_key_value_heads));
    }
  }

  const kernels::KvLayer& layer(size_t l) const { return layers_[l]; }
  // A page of a layer: its heads one after another.
  std::span<uint8_t> page(size_t l, int64_t number) const {
    return {memory_[l].data() + number * page_bytes_[l], static_cast<size_t>(page_bytes_[l])};
  }

  // Bytes of one page of one layer.
  static int64_t page_bytes(const Config& config, Attention kind, KvFormat format) {
    return config.num_key_value_heads * kernels::kTile * kv_position_bytes(kind, format);
  }

 private:
  std::vector<int64_t> page_bytes_;  // of each layer
  std::vector<DeviceBuffer<uint8_t>> memory_;
  std::vector<kernels::KvLayer> layers_;
};

}  // namespace fathom::model
