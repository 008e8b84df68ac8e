// The fused loop with stores that bypass the caches, for one thread's piece of the arrays.
#pragma once

#include "hwy/cache_control.h"
#include "sine.h"

namespace fathom::lab::fused_elementwise_cpu {

// `out` begins a cache line, and an iteration fills one: a line that leaves the write-combining buffer half
// full costs two transfers. kAhead: prefetch distance of x in elements; 0: no prefetch.
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
  hwy::FlushStream();  // orders the streaming stores before later stores of the caller
}

// A page, 64 iterations of some 12 cycles: several times the latency of memory, because a core that streams
// at full rate needs dozens of lines in flight.
inline constexpr int64_t kPrefetchAhead = 1024;

}  // namespace fathom::lab::fused_elementwise_cpu
