// Dequantises an FP8 cache (Fp8KvPages, kernels/attention/paged_kv_cache.h) to bf16 in registers, exactly.
//
// An E4M3 code is a sign, 4 bits of exponent and 3 of mantissa. With the sign at bit 15 of a bf16 number and
// the other bits at 10 .. 4, the bf16 number is the code's value times 2^-120, for subnormal codes too. One
// multiplication by 2^120 times the block's scale gives the value. Neither it nor the tensor cores flush
// subnormals. 4 numbers take 3 shifts, 4 LOP3, 2 HMUL2.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/attention/paged_kv_cache.h"

namespace fathom::kernels {

// The scales of block `block` of two positions as two bf16 numbers, times 2^120. The byte 255 has exponent
// 31, which becomes exponent 255 of bf16 with a mantissa: NaN, and so do all numbers of its block.
__device__ inline uint32_t fp8_scales(uint32_t low, uint32_t high, int block) {
  return ((__byte_perm(low, high, 0x4400 + block * 0x1111) << 4) & 0x0ff00ff0) | 0x70007000;
}

// Dequantises bytes 0 and 2 of `codes` to `even`, 1 and 3 to `odd`. The upper halves of both use the upper
// scale.
__device__ inline void dequantize_fp8(uint32_t codes, uint32_t scales, uint32_t& even, uint32_t& odd) {
  constexpr uint32_t kSign = 0x80008000, kMagnitude = 0x07f007f0;
  even = ((codes << 8) & kSign) | ((codes << 4) & kMagnitude);
  odd  = (codes & kSign) | ((codes >> 4) & kMagnitude);
  for (uint32_t* pair : {&even, &odd}) {
    auto& numbers = reinterpret_cast<__nv_bfloat162&>(*pair);
    numbers       = __hmul2(numbers, reinterpret_cast<const __nv_bfloat162&>(scales));
  }
}

// Eight consecutive dimensions of a position, as bf16.
__device__ inline uint4 dequantize_fp8_eight(uint2 codes, uint32_t scales) {
  uint32_t even[2], odd[2];
  dequantize_fp8(codes.x, scales, even[0], odd[0]);
  dequantize_fp8(codes.y, scales, even[1], odd[1]);
  return {__byte_perm(even[0], odd[0], 0x5410), __byte_perm(even[0], odd[0], 0x7632),
          __byte_perm(even[1], odd[1], 0x5410), __byte_perm(even[1], odd[1], 0x7632)};
}

}  // namespace fathom::kernels
