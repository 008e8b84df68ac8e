// Rounds fp32 to bf16 (to nearest, ties to even) for stores and for operands of the tensor cores.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "core/dtype.h"

namespace fathom {

// Two numbers in one register, `low` in the lower half.
__device__ inline uint32_t pack_bf16x2(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

__device__ inline uint16_t to_bf16_bits(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

__device__ inline void store_bf16(bf16* to, float value) {
  *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(value);
}

}  // namespace fathom
