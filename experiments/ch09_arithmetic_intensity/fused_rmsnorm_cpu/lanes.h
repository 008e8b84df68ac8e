// Sums of squares in vectors, the only arithmetic here that a compiler may not vectorise.
#pragma once

#include <cmath>
#include <cstdint>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"
#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_cpu {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes  = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;
inline constexpr Lanes kLanes{};

// The sum of v(i)^2 over i < n, where v(i) is what `at(i)` returns as a vector of elements i, i + 1, ... and
// `one(i)` as one element. Four accumulators, because an addition takes four cycles.
template <class At, class One>
HWY_INLINE float sum_of_squares(int64_t n, At at, One one) {
  const int64_t lanes = hn::Lanes(kLanes);
  Vector s0 = hn::Zero(kLanes), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const Vector v0 = at(i), v1 = at(i + lanes), v2 = at(i + 2 * lanes), v3 = at(i + 3 * lanes);
    s0 = hn::MulAdd(v0, v0, s0);
    s1 = hn::MulAdd(v1, v1, s1);
    s2 = hn::MulAdd(v2, v2, s2);
    s3 = hn::MulAdd(v3, v3, s3);
  }
  for (; i + lanes <= n; i += lanes) {
    const Vector v = at(i);
    s0             = hn::MulAdd(v, v, s0);
  }
  float sum = hn::GetLane(hn::SumOfLanes(kLanes, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < n; ++i) sum += one(i) * one(i);
  return sum;
}

inline float scale_of(float sum_of_squares, int64_t n) {
  return 1 / std::sqrt(sum_of_squares / static_cast<float>(n) + kEpsilon);
}

}  // namespace fathom::lab::fused_rmsnorm_cpu
