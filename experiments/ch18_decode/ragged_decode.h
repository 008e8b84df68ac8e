// One decode step over a paged cache in bf16: a query for each of S sequences, whose contexts may differ, 8
// query heads to a key-value head. The problem of decode_tail and flexdecoding.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/rng.h"
#include "decode_row.h"
#include "kernels/attention/paged_decode_attention.h"
#include "lab/problem.h"

namespace fathom::lab::ragged_decode {

inline constexpr int64_t kGroup = 8, kPage = 64;
// Pieces of equal length, of all sequences and key-value heads together, unless these are more: seven waves,
// which are at least 6/7 full, so that paged_decode_splits() needs no more.
inline constexpr int64_t kMostPieces = 7 * kernels::kPagedDecodeMaxCtas;

constexpr int64_t pages_for(int64_t positions) { return (positions + kPage - 1) / kPage; }

// A page table for these contexts: different pages, in random order.
inline Generate shuffled_pages(const std::vector<int32_t>& contexts, int64_t columns, int64_t page_count) {
  return generate<int32_t>([=](int32_t* to, int64_t n, uint64_t seed) {
    std::vector<int32_t> order(static_cast<size_t>(page_count));
    fill_permutation(order.data(), page_count, seed, page_count);
    std::fill_n(to, n, 0);
    const int32_t* next = order.data();
    for (size_t t = 0; t < contexts.size(); ++t, to += columns) {
      const int64_t pages = pages_for(contexts[t]);
      std::copy_n(next, pages, to);
      next += pages;
    }
  });
}

struct RaggedDecode {
  int64_t longest, positions, page_count;  // of the contexts; all together; pages of all
  View<const bf16, 3> q;                   // S x Hq x D
  View<const bf16, 4> k, v;                // pages x Hkv x kPage x D
  View<const int32_t, 1> contexts;         // S
  View<const int32_t, 2> pages;            // S x pages of the longest
  View<float, 1> workspace;
  View<bf16, 3> out;  // S x Hq x D

  RaggedDecode(const std::vector<int32_t>& lengths, int64_t kv_heads, int64_t head_dim, Arena& arena)
      : longest(lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end())),
        positions(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})),
        page_count(std::accumulate(lengths.begin(), lengths.end(), int64_t{0},
                                   [](int64_t sum, int32_t length) { return sum + pages_for(length); })),
        q(arena.input<bf16>({static_cast<int64_t>(lengths.size()), kGroup * kv_heads, head_dim}, Normal{})),
        k(arena.input<bf16>({page_count, kv_heads, kPage, head_dim}, Normal{})),
        v(arena.input<bf16>({page_count, kv_heads, kPage, head_dim}, Normal{})),
        contexts(arena.input<int32_t>({q.extent(0)}, generate<int32_t>([=](int32_t* to, int64_t, uint64_t) {
                                        std::copy(lengths.begin(), lengths.end(), to);
                                      }))),
        pages(arena.input<int32_t>({q.extent(0), pages_for(longest)},
                                   shuffled_pages(lengths, pages_for(longest), page_count))),
        workspace(arena.workspace<float>(
            {std::max(kernels::paged_decode_workspace(q.extent(0), kv_heads, head_dim, 0),
                      kernels::paged_decode_workspace(std::max(kMostPieces, q.extent(0) * kv_heads), 1,
                                                      head_dim, 1))})),
        out(arena.output<bf16>({q.extent(0), q.extent(1), head_dim})) {}

  float scale() const { return 1 / std::sqrt(static_cast<float>(q.extent(2))); }

  // With `in_reach` positions of all sequences together.
  Cost cost_of(int64_t in_reach) const {
    const kernels::Cost of =
        kernels::paged_decode_cost(q.extent(0), q.extent(1), k.extent(1), q.extent(2), in_reach);
    return {.read    = static_cast<int64_t>(of.read),
            .written = static_cast<int64_t>(of.written),
            .flops   = of.flops};
  }

  kernels::PagedDecode op(int splits) const {
    return {.q         = q,
            .k         = k,
            .v         = v,
            .contexts  = contexts,
            .pages     = pages,
            .scale     = scale(),
            .splits    = splits,
            .workspace = workspace,
            .out       = out};
  }

  // The reference of a row and query head with every position in reach.
  decode_row::Query query(int64_t t, int64_t h) const {
    return {.numbers = &q(t, h, 0),
            .size    = q.extent(2),
            .scale   = static_cast<double>(scale()),
            .first   = 0,
            .context = contexts(t),
            .at      = [this, t, head = h / kGroup](int64_t j) -> decode_row::KeyAndValue {
              const int64_t page = pages(t, j / kPage);
              return {&k(page, head, j % kPage, 0), &v(page, head, j % kPage, 0)};
            }};
  }
};

}  // namespace fathom::lab::ragged_decode
