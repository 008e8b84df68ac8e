// Attention with sinks on a GPU, over the paged cache of kernels/kv_tiles.h; mathematics in
// kernels/attention.h. Products are of bf16 numbers, those of a cache in FP8 too, with sums in fp32, weights
// exp(s - max) are rounded to bf16 before they meet the values; maxima and sums of weights are fp32.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/stream.h"
#include "core/view.h"
#include "kernels/kv_tiles.h"

namespace fathom::kernels {

// Each row of q [T, Hq, 64] for itself: decoding, and verification of drafts. Row t attends to positions j <=
// positions(t), with a window (0: none) to j > positions(t) - window, and its own key and value are in the
// cache. Query head h reads key-value head h / (Hq / Hkv); Hq / Hkv <= 8. `scale` > 0 multiplies products q
// k; sinks [Hq] are scores as they are. out [T, Hq, 64]; rows of padding become zero.
//
// `longest` >= position + 1 of every row. With T, heads and window it decides into how many pieces a row's
// positions are cut, and a row's bits depend on nothing else. Far too large a bound costs: blocks that find
// nothing to do. What lies in the cache behind a row's position or before its window may be anything, NaN
// too.
//
// It begins before its predecessor in a chain of launches ends (core/launch.cuh). So `rows` must have been
// written before that predecessor, and so must the cache but for the last T positions of each row: T rows of
// one sequence, at consecutive positions, are the most that a step adds to it.
void attend_few(View<const bf16, 3> q, const KvLayer& kv, View<const float, 1> sinks, float scale,
                int64_t window, const PagedRows& rows, int64_t longest, View<bf16, 3> out, StreamRef stream);

}  // namespace fathom::kernels
