// For tests: a KV cache in host memory, in any format.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include "kernels/attention/kv_layer.h"

namespace fathom::kernels {

// Stores a key and a value at position r of a page, and rounds both to the numbers that the cache now holds.
inline void kv_round_trip(const KvLayer& layer, int64_t page, int64_t head, int64_t r, float (&key)[kHeadDim],
                          float (&value)[kHeadDim]) {
  std::visit(
      [&]<class Pages>(const Pages& kv) {
        if constexpr (std::is_same_v<Pages, Bf16KvPages>) {
          for (int64_t d = 0; d < kHeadDim; ++d) {
            bf16& k = kv.keys(page, head)[Bf16KvPages::at(r, d)];
            bf16& v = kv.values(page, head)[Bf16KvPages::at(r, d)];
            k = bf16(key[d]), v = bf16(value[d]);
            key[d] = static_cast<float>(k), value[d] = static_cast<float>(v);
          }
        } else {
          uint8_t* strips = kv.strips(page, head);
          Pages::put(strips, r, false, key);
          Pages::put(strips, r, true, value);
          for (int64_t d = 0; d < kHeadDim; ++d)
            key[d] = Pages::get(strips, r, false, d), value[d] = Pages::get(strips, r, true, d);
        }
      },
      layer);
}

}  // namespace fathom::kernels
