// The taps of the two passes.
#pragma once

#include <array>

#include "filter.h"
#include "weighted_sum.h"

namespace fathom::lab::separable_filter_cpu {

using Line = std::array<Tap, kMostTaps>;

inline std::span<const Tap> column_taps(const Filter& p, Line& taps) {
  for (int64_t a = 0; a < p.taps(); ++a) taps[a] = {.offset = a * p.in.extent(1), .weight = p.column(a)};
  return {taps.data(), static_cast<size_t>(p.taps())};
}

inline std::span<const Tap> row_taps(const Filter& p, Line& taps) {
  for (int64_t b = 0; b < p.taps(); ++b) taps[b] = {.offset = b, .weight = p.row(b)};
  return {taps.data(), static_cast<size_t>(p.taps())};
}

}  // namespace fathom::lab::separable_filter_cpu
