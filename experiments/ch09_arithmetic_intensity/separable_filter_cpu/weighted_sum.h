// out(j) = sum over t of weight(t) in(j + offset(t)) for a stretch of pixels of one row. All variants are
// calls of this loop, so that they differ only in the taps that they sum and in where the results wait.
#pragma once

#include <cstdint>
#include <span>

namespace fathom::lab::separable_filter_cpu {

inline constexpr int64_t kMostTaps = 15;  // of a column or a row

struct Tap {
  int64_t offset;  // in floats
  float weight;
};

// kPixels sums side by side: eight vectors are the chains that two FMA units of latency 4 need.
template <int kPixels>
inline void sum_block(const float* in, std::span<const Tap> taps, float* out) {
  float sums[kPixels] = {};
  for (const Tap& tap : taps)
    for (int j = 0; j < kPixels; ++j) sums[j] += tap.weight * in[tap.offset + j];
  for (int j = 0; j < kPixels; ++j) out[j] = sums[j];
}

inline void weighted_sum(const float* in, std::span<const Tap> taps, float* out, int64_t count) {
  int64_t j = 0;
  for (; j + 64 <= count; j += 64) sum_block<64>(in + j, taps, out + j);
  for (; j + 8 <= count; j += 8) sum_block<8>(in + j, taps, out + j);
  if (j == count) return;
  if (count >= 8) return sum_block<8>(in + count - 8, taps, out + count - 8);  // some pixels a second time
  for (; j < count; ++j) sum_block<1>(in + j, taps, out + j);
}

}  // namespace fathom::lab::separable_filter_cpu
