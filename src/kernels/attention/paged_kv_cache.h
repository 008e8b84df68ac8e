// The paged KV cache on a GPU: pages of 64 positions, and in each page, for every key-value head, the keys
// and the values of 64 dimensions, in bf16 or in FP8.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/dtype.h"
#include "core/view.h"
#include "kernels/gemm/packed_weights.h"

namespace fathom::kernels {

// One layer's cache in bf16, on the device: [pages][heads][keys, values][64][64], tiles of 8 KiB. A tile has
// the layout in which the tensor cores read shared memory ("128-byte swizzle"): the 16-byte piece c of a
// position's 128 bytes is at c ^ (position % 8). So a plain copy of a tile is an operand of wgmma, and
// ldmatrix reads it without bank conflicts.
struct Bf16KvPages {
  bf16* tiles   = nullptr;
  int64_t pages = 0, heads = 0;

  static constexpr int64_t kElements = kTile * kHeadDim;  // of a tile

  FATHOM_HD bf16* keys(int64_t page, int64_t head) const {
    return tiles + (page * heads + head) * 2 * kElements;
  }
  FATHOM_HD bf16* values(int64_t page, int64_t head) const { return keys(page, head) + kElements; }

  // Index of dimension d of position r in a tile.
  FATHOM_HD static constexpr int64_t at(int64_t r, int64_t d) {
    return r * kHeadDim + ((d / 8) ^ (r % 8)) * 8 + d % 8;
  }
};

// One layer's cache in FP8, a little more than half the bytes. A number is an E4M3 code times the scale of
// its block: 16 numbers of one position, dimensions 8 j .. 8 j + 8 of each half of the head, j < 4. Scales
// have 4 significant bits, as codes do, so that their product is exact in bf16: attention gives what it gives
// over a bf16 cache of the same numbers. A block's scale is the one with which its largest number is met
// best, by a code near the top of E4M3. (The rms error of normal numbers is 2.3 %; with powers of two as
// scales 2.7 %, with one fp32 scale for all 64, largest / 448, 2.5 %.) Each position has its own scales, so
// that nothing is quantised again as a page fills. A block is what one warp has of a head when it stores it,
// so that no warp waits for another.
//
// On the device: [pages][heads][4 strips of 16 positions], so that consecutive positions are one copy. In a
// strip:
//
//   keys, values   [16][64] codes each. The 16-byte piece c of the 64 bytes of position r is at c ^ (r / 2
//                  % 4) ("64-byte swizzle"), so that ldmatrix reads 8 positions without bank conflicts.
//   their scales   [16][4] bytes each, one for each block: m + 8 (e + 23) for (1 + m / 8) 2^e, -23 <= e <= 7.
//                  255: the block has a number that is not finite, and all of it is read as NaN.
struct Fp8KvPages {
  uint8_t* tiles = nullptr;
  int64_t pages = 0, heads = 0;

  static constexpr int64_t kStrip      = 16;  // positions
  static constexpr int64_t kCodeBytes  = kStrip * kHeadDim;
  static constexpr int64_t kScaleBytes = kStrip * 4;
  static constexpr int64_t kStripBytes = 2 * (kCodeBytes + kScaleBytes);
  static constexpr int64_t kPageBytes  = kTile / kStrip * kStripBytes;  // of a head

  FATHOM_HD uint8_t* strips(int64_t page, int64_t head) const {
    return tiles + (page * heads + head) * kPageBytes;
  }

  // Offset in a page's strips of dimension d of the key of position r, and of its block's scale. Those of the
  // value are kCodeBytes and kScaleBytes further.
  FATHOM_HD static constexpr int64_t at(int64_t r, int64_t d) {
    return r / kStrip * kStripBytes + r % kStrip * kHeadDim + ((d / 16) ^ (r / 2 % 4)) * 16 + d % 16;
  }
  FATHOM_HD static constexpr int64_t scale_at(int64_t r, int64_t d) {
    return r / kStrip * kStripBytes + 2 * kCodeBytes + r % kStrip * 4 + d / 8 % 4;
  }

  // The scale of a block, from the bits of its largest magnitude. With the smallest scale, numbers down to
  // 2^-33 remain; numbers too large for the largest scale become 107520.
  FATHOM_HD static constexpr uint32_t scale_of(uint32_t largest) {
    constexpr uint32_t kOne = 127 << 23, kLeastOfCode = 1 << 20, kSeven = 7 << 20, kMantissa = 0x7fffff;
    if (largest >= 0x7f800000) return 255;
    const float number = __builtin_bit_cast(float, (largest & kMantissa) | kOne);  // from 1 to 2
    float least        = 2;
    uint32_t best = 0, best_code = 0;
    for (uint32_t m = 0; m < 8; ++m) {
      const float significand = 1 + static_cast<float>(m) / 8;
      const uint32_t code =
          (__builtin_bit_cast(uint32_t, number * (1 / significand)) + kLeastOfCode / 2) & -kLeastOfCode;
      const float beside = __builtin_bit_cast(float, code) * significand - number;  // exact
      const float off    = beside < 0 ? -beside : beside;
      if (off < least) least = off, best = m, best_code = code;
    }
    // The significand of the code is at most 1.75 at 2^8, where E4M3 ends (448); 1.875 goes to 2^7.
    const int top      = (best_code & kMantissa) < kSeven ? 8 : 7;
    const int exponent = static_cast<int>(largest >> 23) + static_cast<int>(best_code >> 23) - 2 * 127 - top;
    if (exponent < -23) return 0;
    return exponent > 7 ? 247 : best + 8 * static_cast<uint32_t>(exponent + 23);
  }
  // The scale of a byte below 248.
  FATHOM_HD static constexpr float scale(uint32_t byte) {
    return __builtin_bit_cast(float, (byte & 7) << 20 | ((byte >> 3) + 104) << 23);
  }

  // On the host: stores and reads a key (or a value, if `value`) as the GPU's ops do. numbers [64], finite.
  static void put(uint8_t* strips, int64_t r, bool value, const float* numbers) {
    for (int64_t j = 0; j < 4; ++j) {
      uint32_t largest = 0;
      for (const int64_t half : {8 * j, 32 + 8 * j})
        for (int64_t d = half; d < half + 8; ++d) {
          const uint32_t magnitude = __builtin_bit_cast(uint32_t, numbers[d]) & 0x7fffffff;
          if (magnitude > largest) largest = magnitude;
        }
      const uint32_t byte                                    = scale_of(largest);
      strips[scale_at(r, 8 * j) + (value ? kScaleBytes : 0)] = static_cast<uint8_t>(byte);
      for (const int64_t half : {8 * j, 32 + 8 * j})
        for (int64_t d = half; d < half + 8; ++d)
          strips[at(r, d) + (value ? kCodeBytes : 0)] = fp8_e4m3(numbers[d] * (1 / scale(byte))).bits;
    }
  }
  static float get(const uint8_t* strips, int64_t r, bool value, int64_t d) {
    const auto code = fp8_e4m3::from_bits(strips[at(r, d) + (value ? kCodeBytes : 0)]);
    return static_cast<float>(code) * scale(strips[scale_at(r, d) + (value ? kScaleBytes : 0)]);
  }
};

// The positions and sequences of a batch's rows, and the sequences' block tables, on the device. Position p
// of sequence s lies at p % 64 of page pages(s, p / 64).
struct PagedRows {
  View<const int32_t, 1> positions;  // [T]; -1: the row is padding, nothing is computed for it
  View<const int32_t, 1> sequence;   // [T]
  View<const int32_t, 2> pages;      // [S, P]; pages out of reach of a window may be -1
};

}  // namespace fathom::kernels
