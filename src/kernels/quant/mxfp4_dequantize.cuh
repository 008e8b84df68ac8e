// Dequantises packed MXFP4 weights to bf16 in registers, exactly. A word of a packed tile
// (kernels/gemm/packed_weights.h) has a lane's 8 weights of one k16 step, and becomes the lane's part of an A
// fragment in bf16 (cuda/ptx.cuh, mma_m16n8k16).
//
// An E2M1 code is a sign and three bits of magnitude. With the sign at bit 15 of a bf16 number and the
// magnitude at bits 8 .. 6, the bf16 number is the code's value times 2^-126, for the subnormal 0.5 too. One
// multiplication by scale 2^126 makes it exact: products are subnormal where the scale is 2^-127, and neither
// that multiplication nor the tensor cores flush subnormals. So each half of a register needs the bits 0x81c0
// of something cheap. With r = word rotated left by 6 these are
//
//   a[0]  word              bits 15, 8..6 of the lower half, and 16 above them
//   a[1]  word << 3         bits 12, 5..3
//   a[2]  r                 bits  9, 2..0
//   a[3]  (r & 0x1b001b) 0x8a0, from the remaining four bits of each half. No rotation moves them into place,
//         but a product is a sum of shifts. Bits 0, 1, 3, 4 of a half of r are e0, m, e1 ^ m and the sign.
//         Shifted by 5, 7 and 11 and added, bits 15, 8, 7, 6 are the sign, e1, e0 and m (bit 8 is
//         m + (e1 ^ m)), and no sum carries into one of those, nor into the other half.
//
// 8 weights take 5 LOP3, 2 shifts, 1 IMAD, 4 HMUL2, and a quarter of the 4 instructions that unpack the
// scales of 32 weights: 13 in all. About 7 of them are for the integer units, which take a warp in two
// cycles.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "core/view.h"

namespace fathom::kernels {

// The word for 8 E2M1 codes, the nibbles of `codes`. The lowest nibble is the lower half of a[0], then come
// the upper half of a[0], the lower half of a[1], and so on.
FATHOM_HD constexpr uint32_t pack_fragment(uint32_t codes) {
  uint32_t word = 0;
  for (int i = 0; i < 6; ++i) {
    const uint32_t code = codes >> (4 * i) & 15;
    word |= ((code >> 3) << 15 | (code & 7) << 6) << (i % 2 * 16) >> (i / 2 * 3);
  }
  for (int half = 0; half < 2; ++half) {
    const uint32_t code = codes >> (24 + 4 * half) & 15, m = code & 1, e0 = code >> 1 & 1, e1 = code >> 2 & 1;
    word |= (e0 | m << 1 | (e1 ^ m) << 3 | code >> 3 << 4) << (half == 0 ? 26 : 10);
  }
  return word;
}

// Unpacks the scales of a tile: 2^126 times a scale in both halves of a register.
//   of[0], of[1]  row g, the tile's first and second block of 32 columns
//   of[2], of[3]  row g + 8
__device__ inline void unpack_scales(uint32_t bytes, uint32_t (&of)[4]) {
  const uint32_t first = (bytes << 7) & 0x7f807f80, second = (bytes >> 1) & 0x7f807f80;
  // Written like this, the halves become operands of the multiplications (R.H0_H0) at no instruction.
  const auto twice = [](uint32_t pair, bool upper) {
    const auto& halves         = reinterpret_cast<const __nv_bfloat162&>(pair);
    const __nv_bfloat162 twice = upper ? __high2bfloat162(halves) : __low2bfloat162(halves);
    return reinterpret_cast<const uint32_t&>(twice);
  };
  of[0] = twice(first, false);
  of[1] = twice(second, false);
  of[2] = twice(first, true);
  of[3] = twice(second, true);
}

// Dequantises the word of step s of a tile, with scales of[s / 2] and of[2 + s / 2].
__device__ inline void dequantize_fragment(uint32_t word, uint32_t scale_g, uint32_t scale_g8,
                                           uint32_t (&a)[4]) {
  constexpr uint32_t kValue = 0x81c081c0;
  uint32_t rotated;  // in PTX, because nvcc would emit both a shift for a[2] and a rotation for a[3]
  asm("shf.l.wrap.b32 %0, %1, %1, 6;" : "=r"(rotated) : "r"(word));
  a[0] = word & kValue;
  a[1] = (word << 3) & kValue;
  a[2] = rotated & kValue;
  a[3] = ((rotated & 0x001b001b) * 0x8a0) & kValue;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t scale = i % 2 == 0 ? scale_g : scale_g8;
    auto& value          = reinterpret_cast<__nv_bfloat162&>(a[i]);
    value                = __hmul2(value, reinterpret_cast<const __nv_bfloat162&>(scale));
  }
}

}  // namespace fathom::kernels
