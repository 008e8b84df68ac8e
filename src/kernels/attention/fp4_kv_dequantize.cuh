// Dequantises 4-bit keys and values (kernels/attention/fp4_kv_pages.h) to bf16 in registers,
// exactly.
//
// An E2M1 code is a sign, 2 bits of exponent and one of mantissa. With the sign at bit 15 of a bf16 number
// and the others at 8 .. 6, the bf16 number is the code's value times 2^-126, for the subnormal 0.5 too. It
// is multiplied by the block's scale times 2^120, which is as large as bf16 has room for (fp8_scales()). So
// the result is the number times 2^-6, and attention multiplies what it makes of it by kFp4Factor. Powers of
// two change no bit of a sum's mantissa.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace fathom::kernels {

inline constexpr float kFp4Factor = 64;

// Code c < 4, known when it is compiled, of each 16-bit half of `codes`; `scales` by fp8_scales(). 2 shifts,
// 2 LOP3, 1 HMUL2.
__device__ inline uint32_t dequantize_fp4(uint32_t codes, int c, uint32_t scales) {
  constexpr uint32_t kSign = 0x80008000, kMagnitude = 0x01c001c0;
  // From bits 4 c .. 4 c + 2 of each half to 6 .. 8, and from 4 c + 3 to 15.
  const uint32_t magnitude = c < 2 ? codes << (6 - 4 * c) : codes >> (4 * c - 6);
  const uint32_t pair      = ((codes << (12 - 4 * c)) & kSign) | (magnitude & kMagnitude);
  const __nv_bfloat162 numbers =
      __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair), reinterpret_cast<const __nv_bfloat162&>(scales));
  return reinterpret_cast<const uint32_t&>(numbers);
}

// Eight consecutive dimensions of a position, times 2^-6.
__device__ inline uint4 dequantize_fp4_eight(uint32_t codes, uint32_t scales) {
  uint32_t apart[4];  // dimensions c and c + 4
#pragma unroll
  for (int c = 0; c < 4; ++c) apart[c] = dequantize_fp4(codes, c, scales);
  return {__byte_perm(apart[0], apart[1], 0x5410), __byte_perm(apart[2], apart[3], 0x5410),
          __byte_perm(apart[0], apart[1], 0x7632), __byte_perm(apart[2], apart[3], 0x7632)};
}

}  // namespace fathom::kernels
