// The walks over a row, or a piece of one, from which the variants are built.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "experiments/exponential.h"

namespace fathom::lab::online_softmax_cpu {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes  = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;
inline constexpr Lanes kLanes{};

// n < one vector elements, the rest of the lanes `fill`.
HWY_INLINE Vector load_tail(const float* x, int64_t n, float fill) {
  HWY_ALIGN float lanes[hn::MaxLanes(kLanes)];
  std::fill(std::copy_n(x, n, lanes), lanes + hn::MaxLanes(kLanes), fill);
  return hn::Load(kLanes, lanes);
}

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Four independent maxima: a single one would wait for its own latency.
inline float maximum(const float* x, int64_t n) {
  const int64_t lanes = hn::Lanes(kLanes);
  Vector m0 = hn::Set(kLanes, kMinusInfinity), m1 = m0, m2 = m0, m3 = m0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    m0 = hn::Max(m0, hn::LoadU(kLanes, x + i));
    m1 = hn::Max(m1, hn::LoadU(kLanes, x + i + lanes));
    m2 = hn::Max(m2, hn::LoadU(kLanes, x + i + 2 * lanes));
    m3 = hn::Max(m3, hn::LoadU(kLanes, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) m0 = hn::Max(m0, hn::LoadU(kLanes, x + i));
  if (i < n) m1 = hn::Max(m1, load_tail(x + i, n - i, kMinusInfinity));
  return hn::GetLane(hn::MaxOfLanes(kLanes, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

// Sum of exp(x(i) - max); `keep(i, e)` is handed each vector of exponentials, and `keep(i, e, count)` the
// last, partial one.
template <class Keep>
HWY_INLINE float sum_of_exponentials(const float* x, int64_t n, float max, Keep keep) {
  const int64_t lanes = hn::Lanes(kLanes);
  const Vector m      = hn::Set(kLanes, max);
  Vector s0 = hn::Zero(kLanes), s1 = s0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const Vector e0 = exponential(kLanes, hn::Sub(hn::LoadU(kLanes, x + i), m));
    const Vector e1 = exponential(kLanes, hn::Sub(hn::LoadU(kLanes, x + i + lanes), m));
    s0              = hn::Add(s0, e0);
    s1              = hn::Add(s1, e1);
    keep(i, e0, lanes);
    keep(i + lanes, e1, lanes);
  }
  for (; i < n; i += lanes) {
    const int64_t count = std::min(lanes, n - i);
    // The lanes beyond the end are so small that their exponential is 0.
    const Vector v = count == lanes ? hn::LoadU(kLanes, x + i) : load_tail(x + i, count, kMinusInfinity);
    const Vector e = exponential(kLanes, hn::Sub(v, m));
    s0             = hn::Add(s0, e);
    keep(i, e, count);
  }
  return hn::GetLane(hn::SumOfLanes(kLanes, hn::Add(s0, s1)));
}

HWY_INLINE void store(Vector v, float* to, int64_t count) {
  if (count == static_cast<int64_t>(hn::Lanes(kLanes))) return hn::StoreU(v, kLanes, to);
  HWY_ALIGN float lanes[hn::MaxLanes(kLanes)];
  hn::Store(v, kLanes, lanes);
  std::copy_n(lanes, count, to);
}

}  // namespace fathom::lab::online_softmax_cpu
