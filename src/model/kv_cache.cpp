#include "model/kv_cache.h"

namespace fathom::model {

KvCache::KvCache(const Config& config, int64_t full_pages, int64_t window_pages, int64_t page_size) {
  for (const Attention attention : config.layers) {
    const int64_t pages        = attention == Attention::full ? full_pages : window_pages;
    const int64_t extents[]    = {pages, page_size, config.num_key_value_heads, config.head_dim};
    const Buffer<float>& keys  = memory_.emplace_back(View<float, 4>(nullptr, extents).size());
    const View<float, 4> k     = keys.as(extents);
    const Buffer<float>& value = memory_.emplace_back(k.size());
    layers_.push_back({.keys = k, .values = value.as(extents)});
  }
}

}  // namespace fathom::model
