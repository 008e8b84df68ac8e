// Counter-based random numbers: they depend on a seed and a position alone, so any piece of a fill can be
// made in any order, on any thread and machine, with the same bits.
//
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace fathom {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey     = std::array<uint32_t, 2>;

// Ten rounds: 128 random bits for each counter.
constexpr PhiloxCounter philox(PhiloxCounter c, PhiloxKey key) {
#pragma GCC unroll 10  // so that a loop over counters vectorises
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c[2];
    c                 = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
                         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;  // the golden ratio and sqrt(3) - 1, as 32-bit fractions
    key[1] += 0xBB67AE85;
  }
  return c;
}

// Every fill writes elements first .. first + n of the seed's sequence to out[0, n): filling in pieces gives
// the same numbers as filling at once. Fills of one seed share random bits: give each array its own seed.

// Uniform in [lo, hi), on a grid of 2^24 points (2^52 for double); rounding to T can produce hi itself.
// T: float, double, bf16, fp16, fp8_e5m2, fp8_e4m3.
template <class T>
void fill_uniform(T* out, int64_t n, uint64_t seed, double lo, double hi, int64_t first = 0);

// Normal (Box-Muller), for the same T. Magnitudes reach 6.7 standard deviations for float and narrower
// types, 8.6 for double.
template <class T>
void fill_normal(T* out, int64_t n, uint64_t seed, double mean, double deviation, int64_t first = 0);

// Uniform integers in [lo, hi), lo < hi. Each probability is off by at most 2^-64.
// T: int8_t, uint8_t, int32_t, uint32_t, int64_t.
template <class T>
void fill_integers(T* out, int64_t n, uint64_t seed, int64_t lo, int64_t hi, int64_t first = 0);

// Elements first .. first + n of a permutation of 0 .. total - 1. T: int32_t, int64_t.
template <class T>
void fill_permutation(T* out, int64_t n, uint64_t seed, int64_t total, int64_t first = 0);

}  // namespace fathom
