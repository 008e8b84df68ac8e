// The problem: attention of one head, not causal, T tokens, fp32.
//   out(i, d) = sum_j p(i, j) v(j, d),   p(i, .) = softmax_j of q(i, .) . k(j, .) / sqrt(64)
#pragma once

#include <cmath>
#include <vector>

#include "experiments/tile_product.h"
#include "lab/problem.h"

namespace fathom::lab::flash_attention_cpu {

inline constexpr int64_t kHeadDim = 64;
inline constexpr float kScale     = 0.125f;  // 1 / sqrt(kHeadDim)
inline constexpr int64_t kRows    = 96;      // of a block of queries: 16 register tiles
inline constexpr int64_t kColumns = 128;     // of a tile of scores: kRows x kColumns is 48 KiB

inline int64_t whole_panels(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

struct Attention {
  View<const float, 2> q, k, v;
  View<float, 2> out;
  // Workspace. What is beyond the last key in them is computed and not used.
  View<float, 1> keys;    // k transposed, in panels
  View<float, 2> scores;  // all of them

  Attention(const Point& at, Arena& arena)
      : q(arena.input<float>({at["tokens"], kHeadDim}, Normal{})),
        k(arena.input<float>({at["tokens"], kHeadDim}, Normal{})),
        v(arena.input<float>({at["tokens"], kHeadDim}, Normal{})),
        out(arena.output<float>({at["tokens"], kHeadDim})),
        keys(arena.workspace<float>({kHeadDim * whole_panels(at["tokens"])})),
        scores(arena.workspace<float>({at["tokens"], whole_panels(at["tokens"])})) {}

  // The two products; the softmax adds some 10 % to them.
  Cost cost() const {
    const auto tokens = static_cast<double>(q.extent(0));
    return {.read = 3 * q.bytes(), .written = out.bytes(), .flops = 4 * tokens * tokens * kHeadDim};
  }

  Sum expected(int64_t i, int64_t d) const {
    const int64_t tokens = k.extent(0);
    std::vector<double> score(static_cast<size_t>(tokens)), size(static_cast<size_t>(tokens));
    double max = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < tokens; ++j) {
      for (int64_t h = 0; h < kHeadDim; ++h) {
        const double product = static_cast<double>(q(i, h)) * k(j, h) / 8;
        score[static_cast<size_t>(j)] += product;
        size[static_cast<size_t>(j)] += std::abs(product);
      }
      max = std::max(max, score[static_cast<size_t>(j)]);
    }
    // An absolute error of a score is a relative one of its exponential: hence the factor 1 + size.
    Sum result{.length = tokens + kHeadDim};
    for (int64_t j = 0; j < tokens; ++j) {
      const double e = std::exp(score[static_cast<size_t>(j)] - max);
      sum += e;
      result.value += e * v(j, d);
      result.magnitude += e * std::abs(v(j, d)) * (1 + size[static_cast<size_t>(j)]);
    }
    result.value /= sum;
    result.magnitude /= sum;
    return result;
  }
};

void scores_in_memory(const Attention&, Context&);
void row_blocks(const Attention&, Context&);
void flash(const Attention&, Context&);
void threads(const Attention&, Context&);

}  // namespace fathom::lab::flash_attention_cpu
