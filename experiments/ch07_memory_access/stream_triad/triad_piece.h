// The loop, with ordinary stores and with stores past the caches, for one thread's piece of the arrays.
#pragma once

#include <cstdint>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "triad.h"

namespace fathom::lab::stream_triad {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int64_t kLine = 8;  // numbers

inline void triad_piece(const double* b, const double* c, double* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] = b[i] + Triad::kScale * c[i];
}

// `a` begins a cache line, and an iteration fills one: a line that leaves the write-combining buffer half
// full costs two transfers.
inline void streamed_piece(const double* b, const double* c, double* a, int64_t n) {
  const hn::CappedTag<double, kLine> d;
  const auto scale    = hn::Set(d, Triad::kScale);
  const int64_t lanes = hn::Lanes(d);
  int64_t i           = 0;
  for (; i + kLine <= n; i += kLine)
    for (int64_t j = i; j < i + kLine; j += lanes)
      hn::Stream(hn::MulAdd(scale, hn::LoadU(d, c + j), hn::LoadU(d, b + j)), d, a + j);
  hwy::FlushStream();  // orders the streaming stores before later stores of the caller
  triad_piece(b + i, c + i, a + i, n - i);
}

}  // namespace fathom::lab::stream_triad
