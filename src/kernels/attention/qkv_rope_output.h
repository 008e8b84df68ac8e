// Where the fused QKV projection puts its heads: queries in a tensor, keys and values in the paged cache, the
// first two rotated (kernels/attention/rope.h).
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "kernels/attention/kv_layer.h"

namespace fathom::kernels {

// The weights' rows are the heads of queries, then those of keys, then those of values; the cache has as many
// heads of each of the latter two. All pointers are to the device.
struct QkvRopeOutput {
  View<const float, 2> rope_table;      // [T, 64]: 32 cosines, then 32 sines of a row's position, contiguous
  View<const int32_t, 1> slot_mapping;  // [T]: page * 64 + position in the page; -1: padding, not cached
  View<bf16, 3> q;                      // [T, query heads, 64], contiguous
  KvLayer kv;
};

}  // namespace fathom::kernels
