// Rows [first, last), each written while the next one is read.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "lanes.h"
#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_cpu {

// One walk over two rows of n: adds x and residual into `added` and returns the sum of squares (kAdd), and
// writes the row before, whose sums lie in `ready`, to sum and y (kWrite).
template <bool kAdd, bool kWrite>
inline float walk(int64_t n, const float* x, const float* residual, float* HWY_RESTRICT added,
                  const float* HWY_RESTRICT ready, float scale, const float* HWY_RESTRICT weight,
                  float* HWY_RESTRICT sum, float* HWY_RESTRICT y) {
  const int64_t lanes  = hn::Lanes(kLanes);
  const Vector factor  = hn::Set(kLanes, scale);
  Vector squares[2]    = {hn::Zero(kLanes), hn::Zero(kLanes)};
  float scalar_squares = 0;
  const auto one       = [&](int64_t i) {
    if (kAdd) {
      added[i] = x[i] + residual[i];
      scalar_squares += added[i] * added[i];
    }
    if (kWrite) {
      sum[i] = ready[i];
      y[i]   = ready[i] * scale * weight[i];
    }
  };
  // Streaming stores want aligned vectors and whole lines, and rows begin anywhere. sum and y begin alike.
  constexpr int64_t kLine = 64 / sizeof(float);
  const int64_t misaligned =
      kWrite ? static_cast<int64_t>(reinterpret_cast<uintptr_t>(sum) / sizeof(float)) % kLine : 0;
  int64_t i = 0;
  for (const int64_t head = std::min(n, (kLine - misaligned) % kLine); i < head; ++i) one(i);
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    Vector v[2], s[2];
    for (int64_t j = 0; j < 2; ++j) {
      const int64_t at = i + j * lanes;
      if (kAdd) v[j] = hn::Add(hn::LoadU(kLanes, x + at), hn::LoadU(kLanes, residual + at));
      if (kWrite) s[j] = hn::LoadU(kLanes, ready + at);
    }
    for (int64_t j = 0; j < 2; ++j) {
      const int64_t at = i + j * lanes;
      if (kAdd) {
        squares[j] = hn::MulAdd(v[j], v[j], squares[j]);
        hn::StoreU(v[j], kLanes, added + at);
      }
      if (kWrite) hn::Stream(s[j], kLanes, sum + at);
    }
    for (int64_t j = 0; j < 2; ++j) {
      const int64_t at = i + j * lanes;
      if (kWrite) hn::Stream(hn::Mul(hn::Mul(s[j], factor), hn::LoadU(kLanes, weight + at)), kLanes, y + at);
    }
  }
  for (; i < n; ++i) one(i);
  return scalar_squares + hn::GetLane(hn::SumOfLanes(kLanes, hn::Add(squares[0], squares[1])));
}

inline void pipelined_rows(const RmsNorm& p, int64_t first, int64_t last) {
  constexpr int64_t kLongest = 16384;
  const int64_t dim          = p.x.extent(1);
  FATHOM_EXPECT(dim <= kLongest, "a row is longer than the buffers on the stack");
  if (first >= last) return;
  alignas(64) float buffers[2 * kLongest];  // on the stack, so that every thread has its own
  const float* weight = p.weight.data();
  const auto x        = [&](int64_t t) { return p.x.data() + t * dim; };
  const auto residual = [&](int64_t t) { return p.residual.data() + t * dim; };
  const auto sum      = [&](int64_t t) { return p.sum.data() + t * dim; };
  const auto y        = [&](int64_t t) { return p.y.data() + t * dim; };

  float *added = buffers, *ready = buffers + dim;
  float squares =
      walk<true, false>(dim, x(first), residual(first), added, nullptr, 0, nullptr, nullptr, nullptr);
  for (int64_t t = first; t + 1 < last; ++t) {
    std::swap(added, ready);
    squares = walk<true, true>(dim, x(t + 1), residual(t + 1), added, ready, scale_of(squares, dim), weight,
                               sum(t), y(t));
  }
  walk<false, true>(dim, nullptr, nullptr, nullptr, added, scale_of(squares, dim), weight, sum(last - 1),
                    y(last - 1));
  hwy::FlushStream();  // orders the streaming stores before later stores of the caller
}

}  // namespace fathom::lab::fused_rmsnorm_cpu
