// The fused loop with stores that bypass the caches, for one thread's piece of the arrays.
#pragma once

#include "hwy/cache_control.h"
#include "sine.h"

namespace fathom::lab::fused_elementwise_cpu {

// `out` begins a cache line, and a turn fills one: a line that leaves the write-combining buffer half full
// costs memory two transfers. kAhead: how many elements ahead of its use a line of x is asked for; 0: never.
template <int64_t kAhead>
HWY_INLINE void streamed_map(const float* x, float* out, int64_t n) {
  const int64_t lanes = hn::Lanes(kLanes);
  const int64_t turn  = std::max<int64_t>(lanes, 16);
  int64_t i           = 0;
  for (; i + turn <= n; i += turn) {
    if (kAhead > 0) hwy::Prefetch(x + i + kAhead);
    for (int64_t j = i; j < i + turn; j += lanes)
      hn::Stream(hn::Sqrt(sine(hn::LoadU(kLanes, x + j))), kLanes, out + j);
  }
  for (; i < n; i += lanes)
    map_tail(x + i, out + i, std::min(lanes, n - i), [](Vector v) { return hn::Sqrt(sine(v)); });
  hwy::FlushStream();  // streaming stores are not ordered with what the caller does next
}

// A page, 64 turns of some 12 cycles: several times the latency of memory, because a core that streams at
// full rate has to have dozens of lines on the way.
inline constexpr int64_t kPrefetchAhead = 1024;

}  // namespace fathom::lab::fused_elementwise_cpu
