// The two passes, each over a whole array, as a library of elementwise functions would offer them.
#pragma once

#include "sine.h"

namespace fathom::lab::fused_elementwise_cpu {

template <class F>
HWY_INLINE void map(const float* from, float* to, int64_t n, F f) {
  const int64_t lanes = hn::Lanes(kLanes);
  int64_t i           = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(kLanes, from + i)), kLanes, to + i);
  if (i < n) map_tail(from + i, to + i, n - i, f);
}

inline void sine_pass(const float* x, float* y, int64_t n) {
  map(x, y, n, [](Vector v) { return sine(v); });
}
inline void root_pass(const float* y, float* z, int64_t n) {
  map(y, z, n, [](Vector v) { return hn::Sqrt(v); });
}

}  // namespace fathom::lab::fused_elementwise_cpu
