// Dequantizing MXFP4 in the checkpoint's layout, on CUDA cores.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace fathom::lab::mxfp4 {

// The 8 numbers of a word, the first in its lowest 4 bits, times 2^-14. An E2M1 code is a sign and three bits
// of magnitude. With the sign at bit 15 of an fp16 and the magnitude at bits 11..9 the fp16 is the number
// times 2^-14, also for the subnormal 0.5. Two codes that are 16 bits apart are converted together.
__device__ inline void unpack(uint32_t codes, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t sign      = codes << (12 - 4 * i);
    const uint32_t magnitude = i < 3 ? codes << (9 - 4 * i) : codes >> 3;
    const uint32_t pair      = (sign & 0x80008000) | (magnitude & 0x0e000e00);
    const float2 two         = __half22float2(reinterpret_cast<const __half2&>(pair));
    to[i]                    = two.x;
    to[i + 4]                = two.y;
  }
}

// The remaining factor: an E8M0 scale, of a code up to 240, times 2^14.
__device__ inline float scale(uint32_t code) { return __uint_as_float((code + 14) << 23); }

}  // namespace fathom::lab::mxfp4
