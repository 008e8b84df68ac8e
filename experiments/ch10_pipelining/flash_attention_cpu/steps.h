// The steps that all variants share: packing keys in panels, a block of scores, their softmax.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "attention.h"
#include "experiments/exponential.h"

namespace fathom::lab::flash_attention_cpu {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Panel j of `keys` holds keys 16 j .. 16 j + 15, dimension by dimension; zeros where there is no key.
inline void transpose_keys(const Attention& p) {
  const int64_t tokens = p.k.extent(0);
  for (int64_t first = 0; first < tokens; first += kPanel) {
    float* panel = p.keys.data() + first * kHeadDim;
    for (int64_t j = 0; j < kPanel; ++j)
      for (int64_t h = 0; h < kHeadDim; ++h)
        panel[h * kPanel + j] = first + j < tokens ? p.k(first + j, h) : 0.0f;
  }
}

// to(i, j) = q(row + i, .) . k(column + j, .), unscaled, for i < rows and whole panels of columns.
inline void scores(const Attention& p, int64_t row, int64_t rows, int64_t column, int64_t columns, float* to,
                   int64_t stride) {
  product(rows, whole_panels(columns), kHeadDim, p.q.data() + row * kHeadDim, kHeadDim,
          packed_panels(p.keys.data() + column * kHeadDim, kHeadDim), to, stride, false);
}

inline float maximum(const float* s, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  auto m0 = hn::Set(d, kMinusInfinity), m1 = m0;
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    m0 = hn::Max(m0, hn::LoadU(d, s + j));
    m1 = hn::Max(m1, hn::LoadU(d, s + j + lanes));
  }
  float max = hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
  for (; j < n; ++j) max = std::max(max, s[j]);
  return max;
}

// s(j) = exp(kScale (s(j) - max)) for j < n; returns their sum. Works on whole panels: s has room for them,
// and elements from n on become 0.
inline float exponentials(float* s, int64_t n, float max) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const auto m = hn::Set(d, max), scale = hn::Set(d, kScale);
  const auto at = [&](int64_t j) { return exponential(d, hn::Mul(hn::Sub(hn::LoadU(d, s + j), m), scale)); };
  auto sum0 = hn::Zero(d), sum1 = sum0;
  std::fill(s + n, s + whole_panels(n), kMinusInfinity);
  for (int64_t j = 0; j < n; j += kPanel)
    for (int64_t v = j; v < j + kPanel; v += 2 * lanes) {
      const auto e0 = at(v), e1 = at(v + lanes);
      hn::StoreU(e0, d, s + v);
      hn::StoreU(e1, d, s + v + lanes);
      sum0 = hn::Add(sum0, e0);
      sum1 = hn::Add(sum1, e1);
    }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

inline void scale_row(float* row, float factor) {
  for (int64_t d = 0; d < kHeadDim; ++d) row[d] *= factor;
}

}  // namespace fathom::lab::flash_attention_cpu
