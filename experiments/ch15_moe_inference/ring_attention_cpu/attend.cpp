// Attention of some queries to some keys, tile by tile, with the softmax of what was seen so far: Dao,
// FlashAttention-2, arXiv:2307.08691, 2023, algorithm 1, in which the loop over keys may go on with keys that
// come from another rank.
#include <algorithm>
#include <limits>

#include "experiments/exponential.h"
#include "experiments/tile_product.h"
#include "ring_attention.h"

namespace fathom::lab::ring_attention_cpu {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kRows        = 96;   // of a block of queries: 16 register tiles
constexpr int64_t kColumns     = 128;  // keys of a tile; its scores are 48 KiB
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Keys transposed, in panels of kPanel of them; zeros beyond the last.
int64_t pack(const float* k, int64_t columns, float* panels) {
  const int64_t whole = (columns + kPanel - 1) / kPanel * kPanel;
  for (int64_t j = 0; j < whole; ++j)
    for (int64_t d = 0; d < kHeadDim; ++d)
      panels[(j / kPanel * kHeadDim + d) * kPanel + j % kPanel] = j < columns ? k[j * kHeadDim + d] : 0;
  return whole;
}

// One row of scores becomes weights relative to the new maximum; returns what the sums so far are worth
// relative to it. `seen` columns of `whole` count.
float soften(float* scores, int64_t seen, int64_t whole, float& max, float& sum) {
  using Lanes = hn::CappedTag<float, kPanel>;
  const Lanes d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(Lanes()));
  std::fill(scores + seen, scores + whole, kMinusInfinity);
  auto most = hn::Set(d, kMinusInfinity);
  for (int64_t j = 0; j < whole; j += kLanes) most = hn::Max(most, hn::LoadU(d, scores + j));
  const float now = std::max(max, hn::GetLane(hn::MaxOfLanes(d, most)) * kScale);
  auto total      = hn::Zero(d);
  for (int64_t j = 0; j < whole; j += kLanes) {
    const auto p = exponential(d, hn::MulSub(hn::LoadU(d, scores + j), hn::Set(d, kScale), hn::Set(d, now)));
    hn::StoreU(p, d, scores + j);
    total = hn::Add(total, p);
  }
  const float worth = std::exp(max - now);  // 0 for the first keys
  sum               = sum * worth + hn::GetLane(hn::SumOfLanes(d, total));
  max               = now;
  return worth;
}

}  // namespace

void begin(const Queries& queries) {
  std::fill_n(queries.out, queries.at.rows * kHeadDim, 0.0f);
  std::fill_n(queries.max, queries.at.rows, kMinusInfinity);
  std::fill_n(queries.sum, queries.at.rows, 0.0f);
}

int64_t attend(const Queries& queries, Chunk keys, const float* k, const float* v, float* panels) {
  alignas(64) float scores[kRows * kColumns];
  int64_t pairs = 0;
  for (int64_t first = 0; first < keys.rows; first += kColumns) {
    const int64_t columns = std::min(kColumns, keys.rows - first), position = keys.first + first;
    if (position >= queries.at.first + queries.at.rows) break;  // nobody sees these, nor what follows
    const int64_t whole = pack(k + first * kHeadDim, columns, panels);
    for (int64_t row = 0; row < queries.at.rows; row += kRows) {
      const int64_t rows = std::min(kRows, queries.at.rows - row);
      const auto seen_by = [&](int64_t r) {
        return std::clamp<int64_t>(queries.at.first + row + r - position + 1, 0, columns);
      };
      if (seen_by(rows - 1) == 0) continue;
      float* const out = queries.out + row * kHeadDim;
      product(rows, whole, kHeadDim, queries.q + row * kHeadDim, kHeadDim, packed_panels(panels, kHeadDim),
              scores, kColumns, false);
      for (int64_t r = 0; r < rows; ++r) {
        float* const of_row = scores + r * kColumns;
        const int64_t seen  = seen_by(r);
        pairs += seen;
        if (seen == 0) {
          std::fill_n(of_row, whole, 0.0f);
          continue;
        }
        const float worth = soften(of_row, seen, whole, queries.max[row + r], queries.sum[row + r]);
        for (int64_t d = 0; d < kHeadDim; ++d) out[r * kHeadDim + d] *= worth;
      }
      product(rows, kHeadDim, columns, scores, kColumns, rows_of(v + first * kHeadDim, kHeadDim), out,
              kHeadDim, true);
    }
  }
  return pairs;
}

void finish(const Queries& queries) {
  for (int64_t r = 0; r < queries.at.rows; ++r)
    for (int64_t d = 0; d < kHeadDim; ++d) queries.out[r * kHeadDim + d] /= queries.sum[r];
}

}  // namespace fathom::lab::ring_attention_cpu
