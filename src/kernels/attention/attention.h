// Attention with sinks over a paged KV cache, grouped queries, causal, with or without a sliding window:
//   s(j)  = q . k(j) / sqrt(Dh)                     j <= i, and j > i - window where there is one
//   out   = sum_j exp(s(j)) v(j) / (exp(sink) + sum_j exp(s(j)))
//
// The sink is a logit of each query head: it is not scaled, has no value, and counts once. Query head h reads
// key-value head h / (Hq / Hkv), rounded down.
//
// bytes   decode: 8 Hkv Dh for each position in reach (fp32 keys and values), read once for all heads of a
//         group; prefill: the same, for each tile of query rows
// flops   4 Hq Dh for each pair of a query and a position in its reach
// limit   decode: memory bandwidth; prefill: the FMA units
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "kernels/execution.h"

namespace fathom::kernels {

// The keys and values of one layer, of all sequences, in pages: [pages, page size, Hkv, Dh].
struct KvPages {
  View<float, 4> keys, values;

  int64_t page_size() const { return keys.extent(1); }
};

// The rows of each sequence in a batch, and the sequences' block tables. The rows of sequence s are
// first_row(s) .. first_row(s + 1), at consecutive positions. Position p of sequence s lies in slot p %
// page_size of page pages(s, p / page_size). Pages out of reach of a window need not exist (-1).
struct SequenceRows {
  View<const int32_t, 1> first_row;  // [S + 1]
  View<const int32_t, 1> positions;  // [T]
  View<const int32_t, 2> pages;      // [S, P]
};

// Stores keys, values [T, Hkv, Dh] in their slots of `kv`.
void kv_store_reference(View<const float, 3> keys, View<const float, 3> values, const SequenceRows& rows,
                        const KvPages& kv, const Execution& on);

// q, out [T, Hq, Dh]; sinks [Hq]; window in positions including the query's own, or 0 for none. The keys and
// values of the rows themselves are in `kv` already. A row's result does not depend on the other rows.
void attention_reference(View<const float, 3> q, const KvPages& kv, View<const bf16, 1> sinks, int64_t window,
                         const SequenceRows& rows, View<float, 3> out, const Execution& on);
void attention_cpu(View<const float, 3> q, const KvPages& kv, View<const bf16, 1> sinks, int64_t window,
                   const SequenceRows& rows, View<float, 3> out, const Execution& on);
int64_t attention_cpu_scratch_bytes(int64_t query_heads, int64_t head_dim, int threads);

}  // namespace fathom::kernels
