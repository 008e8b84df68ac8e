// Floats as unsigned integers of the same order, for integer maxima and for sorting. No float has the key 0.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fathom {

// -0 has the key of 0; NaNs lie beyond the infinities.
__device__ inline uint32_t radix_key(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 becomes 0
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ inline float radix_key_value(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

}  // namespace fathom
