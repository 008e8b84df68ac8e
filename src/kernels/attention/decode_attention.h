// Decode attention with sinks on a GPU, over the paged cache of kernels/attention/paged_kv_cache.h;
// mathematics in kernels/attention/attention.h. Products are of bf16 numbers, also over a cache in fewer
// bits, with fp32 sums. The weights exp(s - max) are rounded to bf16 before they multiply the values; maxima
// and sums of weights are fp32.
//
// bytes   q and out 4 Hq Dh a row; keys and values 256 Hkv for each position in reach (136 Hkv in FP8,
//         104 in K8V4, 72 in NVFP4)
// flops   4 Hq Dh for each row and position in its reach
// limit   DRAM bandwidth; a window or a short context: latency
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/attention/kv_layer.h"
#include "kernels/attention/paged_kv_cache.h"

namespace fathom::kernels {

// When the next kernel of a chain of dependent launches may start. start_early: before this one has its
// queries, so that it fetches its weights meanwhile.
enum class Dependents { start_late, start_early };

// Each row of q [T, Hq, 64] separately: for decoding, and for verification of drafts. Row t attends to
// positions j <= positions(t), with a window (0: none) to j > positions(t) - window; its own key and value
// are in the cache already. Query head h reads key-value head h / (Hq / Hkv); Hq / Hkv <= 8. `scale` > 0
// multiplies the products q k; sinks [Hq] are not scaled. out [T, Hq, 64]; padding rows become zero.
//
// `longest` is at least position + 1 of every row. Together with T, heads and window it decides into how many
// splits a row's positions are cut (Flash-Decoding), and a row's bits depend on nothing else. A bound that is
// far too large costs time, because CTAs then find nothing to do. The cache may hold anything, NaN too,
// behind a row's position and before its window.
//
// The kernel begins before the previous kernel in a chain of dependent launches ends (cuda/launch.cuh). So
// `rows` must have been written before that previous kernel, and so must the cache except for the last T
// positions of each row: a step adds at most T positions to a sequence. So no row may read what another
// sequence's rows of the same step write; in prefill attention they may.
void decode_attention(View<const bf16, 3> q, const KvLayer& kv, View<const float, 1> sinks, float scale,
                      int64_t window, const PagedRows& rows, int64_t longest, View<bf16, 3> out,
                      StreamRef stream, Dependents dependents = Dependents::start_late);

}  // namespace fathom::kernels
