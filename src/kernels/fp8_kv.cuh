// Codes of an FP8 cache (Fp8KvTiles, kernels/kv_tiles.h) become bf16 in registers, exactly.
//
// An E4M3 code is a sign, 4 bits of exponent and 3 of mantissa. With the sign at bit 15 of a bf16 and the
// other bits at 10..4 the number is there times 2^-120, subnormal ones too, and one multiplication by 2^120
// times the block's scale makes it right: neither that nor the tensor cores flush subnormals. For 4 numbers:
// 3 shifts, 4 LOP3, 2 HMUL2.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/kv_tiles.h"

namespace fathom::kernels {

// Byte `block` of a position's scales, and the same of another position, as two bf16 numbers, times 2^120:
// the byte's exponent 31, 255 in bf16, makes NaN of all numbers.
__device__ inline uint32_t fp8_scales(uint32_t of_low, uint32_t of_high, int block) {
  return ((__byte_perm(of_low, of_high, 0x4400 + block * 0x1111) << 4) & 0x0ff00ff0) | 0x70007000;
}

// Bytes 0 and 2 of `codes` become `even`, 1 and 3 `odd`; the upper halves of both have the upper scale.
__device__ inline void unpack_fp8(uint32_t codes, uint32_t scales, uint32_t& even, uint32_t& odd) {
  constexpr uint32_t kSign = 0x80008000, kMagnitude = 0x07f007f0;
  even = ((codes << 8) & kSign) | ((codes << 4) & kMagnitude);
  odd  = (codes & kSign) | ((codes >> 4) & kMagnitude);
  for (uint32_t* pair : {&even, &odd}) {
    auto& numbers = reinterpret_cast<__nv_bfloat162&>(*pair);
    numbers       = __hmul2(numbers, reinterpret_cast<const __nv_bfloat162&>(scales));
  }
}

// A page of a head, as Fp8KvTiles has it, becomes one as KvTiles has it: keys and values as operands of
// wgmma. By kThreads threads, pieces of 8 numbers each, both pages in shared memory without bank conflicts.
// Values of positions from `end` on become numbers, whatever they were.
template <int kThreads>
__device__ inline void unpack_fp8_page(const unsigned char* packed, unsigned char* page, int end) {
  constexpr int kPieces = 8, kPositions = kTile, kCodeRow = kHeadDim;
#pragma unroll 1  // for its registers, of which attention has few to spare
  for (int i = threadIdx.x; i < 2 * kPositions * kPieces; i += kThreads) {
    const int value = i / (kPositions * kPieces), r = i / kPieces % kPositions, piece = i % kPieces;
    const unsigned char* strip   = packed + r / 16 * static_cast<int>(Fp8KvTiles::kStripBytes);
    const unsigned char* of_rows = strip + 2 * static_cast<int>(Fp8KvTiles::kCodeBytes);
    const int row                = value * 16 + r % 16;
    const auto codes = *reinterpret_cast<const uint2*>(strip + row * kCodeRow + (piece / 2 ^ r / 2 % 4) * 16 +
                                                       piece % 2 * 8);
    uint32_t scales  = reinterpret_cast<const uint32_t*>(of_rows)[row];
    if (value && r >= end) scales = 0;
    scales = fp8_scales(scales, scales, piece % 4);
    uint32_t even[2], odd[2];
    unpack_fp8(codes.x, scales, even[0], odd[0]);
    unpack_fp8(codes.y, scales, even[1], odd[1]);
    reinterpret_cast<uint4*>(page)[(value * kPositions + r) * kPieces + (piece ^ r % 8)] = {
        __byte_perm(even[0], odd[0], 0x5410), __byte_perm(even[0], odd[0], 0x7632),
        __byte_perm(even[1], odd[1], 0x5410), __byte_perm(even[1], odd[1], 0x7632)};
  }
}

}  // namespace fathom::kernels
