// The prompt of attention.h: its inputs, its cost, and the check against the formula.
#include "attention.h"

#include <algorithm>

#include "core/rng.h"
#include "experiments/paged_attention_problem.h"

namespace fathom::lab::flash_attention_gpu {
namespace {

using paged_attention::pages_for;

constexpr int64_t kTileRows = 64;

int64_t tiles_for(int64_t tokens) { return (tokens + kTileRows - 1) / kTileRows; }
int64_t scored_tokens(int64_t tokens) { return tokens <= kMaxScoredTokens ? tokens : 0; }

Generate positions_in_order() {
  return generate<int32_t>([](int32_t* to, int64_t n, uint64_t) {
    for (int32_t t = 0; t < n; ++t) to[t] = t;
  });
}

// Normal, rounded to bf16, in which checkpoints hold sinks. At check points some lie so far below the scores
// that weights relative to them overflow.
Generate sinks_of(int64_t tokens) {
  return generate<float>([tokens](float* to, int64_t n, uint64_t seed) {
    fill_normal(to, n, seed, 0, 1);
    for (int64_t h = 0; tokens < 1024 && h < n; h += 3) to[h] -= h % 2 == 0 ? 60.0f : 100.0f;
    for (int64_t h = 0; h < n; ++h) to[h] = static_cast<float>(bf16(to[h]));
  });
}

// kernels::PrefillTile of each: row, rows, sequence. Tiles end where pages end.
Generate tiles_of_rows(int64_t tokens) {
  return generate<int32_t>([tokens](int32_t* to, int64_t, uint64_t) {
    for (int64_t row = 0; row < tokens; row += kTileRows) {
      *to++ = static_cast<int32_t>(row);
      *to++ = static_cast<int32_t>(std::min(kTileRows, tokens - row));
      *to++ = 0;
    }
  });
}

}  // namespace

PromptAttention::PromptAttention(const Point& at, Arena& arena)
    : window(at["window"]),
      q(arena.input<bf16>({at["tokens"], kHeads, kHeadDim}, Normal{})),
      tiles(arena.input<bf16>({pages_for(at["tokens"]), kKvHeads, 2, kPage, kHeadDim}, Normal{})),
      pages(arena.input<int32_t>({1, pages_for(at["tokens"])}, Permutation{})),
      sinks(arena.input<float>({kHeads}, sinks_of(at["tokens"]))),
      positions(arena.input<int32_t>({at["tokens"]}, positions_in_order())),
      row_tiles(arena.input<int32_t>({tiles_for(at["tokens"]), 3}, tiles_of_rows(at["tokens"]))),
      out(arena.output<bf16>({at["tokens"], kHeads, kHeadDim})),
      gathered(arena.workspace<bf16>({2, kKvHeads, scored_tokens(at["tokens"]), kHeadDim})),
      scores(arena.workspace<float>(
          {kGroup, scored_tokens(at["tokens"]), (scored_tokens(at["tokens"]) + 7) / 8 * 8})),
      weights(arena.workspace<bf16>({kGroup, scores.extent(1), scores.extent(2)})) {}

Cost PromptAttention::cost() const {
  double pairs = 0;  // (token, position in its reach)
  for (int64_t t = 0; t < tokens(); ++t)
    pairs += static_cast<double>(window > 0 ? std::min(t + 1, window) : t + 1);
  return {.read      = q.bytes() + 4 * tokens() * kKvHeads * kHeadDim,
          .written   = out.bytes(),
          .flops     = 4.0 * kHeads * kHeadDim * pairs,
          .flop_type = DType::bf16};
}

void PromptAttention::check(Checker& checker) const {
  paged_attention::check_rows(checker, out, [&](int64_t t, int64_t h) {
    const int64_t first = window > 0 ? std::max<int64_t>(0, t - window + 1) : 0;
    return paged_attention::RowReference(&q(t, h, 0), {kv(), pages.data(), h / kGroup}, kScale, sinks(h),
                                         first, t);
  });
}

}  // namespace fathom::lab::flash_attention_gpu
