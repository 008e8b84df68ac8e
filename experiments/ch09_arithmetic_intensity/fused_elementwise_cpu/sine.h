// A sine for [0, pi] that all variants share, so that they differ only in their traffic.
#pragma once

#include <algorithm>
#include <cstdint>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"

namespace fathom::lab::fused_elementwise_cpu {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes  = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;
inline constexpr Lanes kLanes{};

// t = min(x, pi - x) lies in [0, pi/2] and has the same sine. pi - x subtracts a float and then the rest of
// pi, because near pi the sine is as small as the rounding error of pi. The odd polynomial has the least
// relative error that degree 9 allows (Remez): 6e-9, a tenth of a rounding.
HWY_INLINE Vector sine(Vector x) {
  const Vector reflected =
      hn::Add(hn::Sub(hn::Set(kLanes, 0x1.921fb6p+1f), x), hn::Set(kLanes, -0x1.777a5cp-24f));
  const Vector t = hn::Min(x, reflected);
  const Vector s = hn::Mul(t, t);
  Vector p       = hn::Set(kLanes, 0x1.5dbdf2p-19f);
  p              = hn::MulAdd(p, s, hn::Set(kLanes, -0x1.9f6ffep-13f));
  p              = hn::MulAdd(p, s, hn::Set(kLanes, 0x1.110ed4p-7f));
  p              = hn::MulAdd(p, s, hn::Set(kLanes, -0x1.55554cp-3f));
  return hn::MulAdd(hn::Mul(p, s), t, t);
}

// The last elements of an array of n, fewer than a vector: through a padded vector, so that they get the same
// arithmetic.
template <class F>
HWY_INLINE void map_tail(const float* from, float* to, int64_t n, F f) {
  HWY_ALIGN float lanes[hn::MaxLanes(kLanes)] = {};
  std::copy_n(from, n, lanes);
  hn::Store(f(hn::Load(kLanes, lanes)), kLanes, lanes);
  std::copy_n(lanes, n, to);
}

}  // namespace fathom::lab::fused_elementwise_cpu
