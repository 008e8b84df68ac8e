// The two walks over a piece of the array that all variants but the serial ones are made of.
#pragma once

#include <cstdint>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"

namespace fathom::lab::prefix_scan_cpu {

namespace hn = hwy::HWY_NAMESPACE;
using Eight  = hn::FixedTag<float, 8>;
using Vector = hn::Vec<Eight>;
inline constexpr Eight kEight{};

// The scan of eight numbers in a register, by Hillis and Steele: each lane adds the one 1, then 2, then 4
// lanes before it. The third step crosses the halves of the register, which shifts do not: the sum of the
// lower half is added to all of the upper.
HWY_INLINE Vector scan_in_register(Vector v) {
  v = hn::Add(v, hn::ShiftLeftLanes<1>(kEight, v));
  v = hn::Add(v, hn::ShiftLeftLanes<2>(kEight, v));
  return hn::Add(v, hn::ConcatLowerLower(kEight, hn::Broadcast<3>(v), hn::Zero(kEight)));
}

// out(i) = before + x(0) + ... + x(i); returns the last. Only `carry` passes from a vector to the next, and
// takes one addition. kStream: past the caches; then `out` must be aligned to 32 bytes.
template <bool kStream>
HWY_INLINE float scan_piece(const float* x, float* out, int64_t n, float before) {
  Vector carry = hn::Set(kEight, before);
  int64_t i    = 0;
  for (; i + 8 <= n; i += 8) {
    const Vector scanned = scan_in_register(hn::LoadU(kEight, x + i));
    const Vector result  = hn::Add(scanned, carry);
    if (kStream)
      hn::Stream(result, kEight, out + i);
    else
      hn::StoreU(result, kEight, out + i);
    const Vector last = hn::Broadcast<3>(scanned);
    carry             = hn::Add(carry, hn::ConcatUpperUpper(kEight, last, last));
  }
  float sum = hn::GetLane(carry);
  for (; i < n; ++i) out[i] = sum += x[i];
  return sum;
}

// The sum of the piece, in eight vectors.
HWY_INLINE float reduce_piece(const float* x, int64_t n) {
  constexpr int64_t kVectors = 8;
  Vector sums[kVectors];
#pragma GCC unroll 8
  for (Vector& sum : sums) sum = hn::Zero(kEight);
  int64_t i = 0;
  for (; i + 8 * kVectors <= n; i += 8 * kVectors)
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) sums[v] = hn::Add(sums[v], hn::LoadU(kEight, x + i + 8 * v));
#pragma GCC unroll 4
  for (int64_t step = kVectors / 2; step > 0; step /= 2)
    for (int64_t v = 0; v < step; ++v) sums[v] = hn::Add(sums[v], sums[v + step]);
  float sum = hn::GetLane(hn::SumOfLanes(kEight, sums[0]));
  for (; i < n; ++i) sum += x[i];
  return sum;
}

}  // namespace fathom::lab::prefix_scan_cpu
