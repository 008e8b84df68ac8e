// out(j) = sum over t of weight(t) in(j + offset(t)) for a stretch of pixels of one row. All variants are
// calls of this loop, so that they differ only in the taps that they sum and in where the results wait.
#pragma once

#include <cstdint>
#include <span>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"

namespace fathom::lab::separable_filter_cpu {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes  = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;
inline constexpr Lanes kLanes{};

inline constexpr int64_t kMostTaps = 15;  // of a column or a row

struct Tap {
  int64_t offset;  // in floats
  float weight;
};

// kVectors vectors of sums side by side. The pragmas keep them in registers.
template <int kVectors>
HWY_INLINE void sum_block(const float* in, std::span<const Tap> taps, float* out) {
  const int64_t lanes = hn::Lanes(kLanes);
  Vector sums[kVectors];
#pragma GCC unroll 8
  for (Vector& sum : sums) sum = hn::Zero(kLanes);
  for (const Tap& tap : taps) {
    const Vector weight = hn::Set(kLanes, tap.weight);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      sums[v] = hn::MulAdd(weight, hn::LoadU(kLanes, in + tap.offset + v * lanes), sums[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], kLanes, out + v * lanes);
}

inline void weighted_sum(const float* in, std::span<const Tap> taps, float* out, int64_t count) {
  const int64_t lanes = hn::Lanes(kLanes);
  int64_t j           = 0;
  // Eight vectors are the chains that two FMA units of latency 4 need.
  for (; j + 8 * lanes <= count; j += 8 * lanes) sum_block<8>(in + j, taps, out + j);
  for (; j + lanes <= count; j += lanes) sum_block<1>(in + j, taps, out + j);
  if (j == count) return;
  if (count >= lanes)
    return sum_block<1>(in + count - lanes, taps, out + count - lanes);  // some pixels again
  for (; j < count; ++j) {
    float sum = 0;
    for (const Tap& tap : taps) sum += tap.weight * in[j + tap.offset];
    out[j] = sum;
  }
}

}  // namespace fathom::lab::separable_filter_cpu
