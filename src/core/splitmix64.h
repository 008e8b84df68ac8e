// Output function and increment of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
// Generators", OOPSLA 2014): number i of the stream of `seed` is splitmix64(seed + i * kSplitmix64Increment).
#pragma once

#include <cstdint>

#include "core/view.h"

namespace fathom {

inline constexpr uint64_t kSplitmix64Increment = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio, odd

// A bijection on 64 bits: every bit of the input changes about half of the output's.
FATHOM_HD constexpr uint64_t splitmix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace fathom
