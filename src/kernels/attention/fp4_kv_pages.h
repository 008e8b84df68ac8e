// The paged KV cache in 4 bits, beside the formats of kernels/attention/paged_kv_cache.h:
//
//   format         bytes of a position and head   tokens in the memory of bf16's   rms error, normal numbers
//   Bf16KvPages    256                            1
//   Fp8KvPages     136                            1.88                             2.3 %
//   K8V4KvPages    104                            2.46                             keys 2.3 %, values 9.5 %
//   Nvfp4KvPages    72                            3.56                             9.5 %
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/attention/paged_kv_cache.h"

namespace fathom::kernels {

// One layer's cache with values in 4 bits, and keys in 4 bits too or, if kFp8Keys, in FP8 as Fp8KvPages has
// them: an error of a key moves the weights of its position, one of a value only their sum. A number of 4
// bits is an E2M1 code times the scale of its block. The blocks of 16 and the bytes of scales are those of
// Fp8KvPages. (NVFP4 proper has E4M3 scales, which end at 2^-9 and so need a scale of the tensor, which
// nobody knows before the cache is full. These have the same 4 significant bits and reach 2^-23.) A block's
// scale is its largest magnitude over 6, E2M1's largest number, rounded to 4 bits. Code times scale is exact
// in bf16.
//
// On the device: [pages][heads][4 strips of 16 positions]. In a strip:
//
//   keys           [16][64] codes of FP8, as in Fp8KvPages, or [16][32] bytes of two codes
//   values         [16][32] bytes of two codes: dimensions 2 i and, in the upper four bits, 2 i + 1. The
//                  16-byte piece c of the 32 bytes of position r is at c ^ (r / 4 % 2) ("32-byte swizzle"),
//                  so that ldmatrix reads 8 positions without bank conflicts. 4-bit keys lie so too.
//   their scales   [16][4] bytes of keys, then of values
template <bool kFp8Keys_>
struct Fp4KvPages {
  uint8_t* tiles = nullptr;
  int64_t pages = 0, heads = 0;

  static constexpr bool kFp8Keys          = kFp8Keys_;
  static constexpr int64_t kStrip         = Fp8KvPages::kStrip;
  static constexpr int64_t kValueBytes    = kStrip * kHeadDim / 2;
  static constexpr int64_t kKeyBytes      = kFp8Keys ? Fp8KvPages::kCodeBytes : kValueBytes;
  static constexpr int64_t kScaleBytes    = Fp8KvPages::kScaleBytes;
  static constexpr int64_t kKeyScalesAt   = kKeyBytes + kValueBytes;  // in a strip
  static constexpr int64_t kValueScalesAt = kKeyScalesAt + kScaleBytes;
  static constexpr int64_t kStripBytes    = kValueScalesAt + kScaleBytes;
  static constexpr int64_t kPageBytes     = kTile / kStrip * kStripBytes;  // of a head
  static constexpr int64_t kPositionBytes = kStripBytes / kStrip;          // of a head

  FATHOM_HD uint8_t* strips(int64_t page, int64_t head) const {
    return tiles + (page * heads + head) * kPageBytes;
  }

  // Offset in a page's strips of the byte with dimension d of the value (else the key) of position r, and of
  // its block's scale.
  FATHOM_HD static constexpr int64_t at(int64_t r, bool value, int64_t d) {
    const int64_t strip = r / kStrip * kStripBytes, row = r % kStrip;
    if (kFp8Keys && !value) return strip + row * kHeadDim + ((d / 16) ^ (row / 2 % 4)) * 16 + d % 16;
    const int64_t codes = strip + (value ? kKeyBytes : 0) + row * kHeadDim / 2;
    return codes + ((d / 32) ^ (row / 4 % 2)) * 16 + d % 32 / 2;
  }
  FATHOM_HD static constexpr int64_t scale_at(int64_t r, bool value, int64_t d) {
    return r / kStrip * kStripBytes + (value ? kValueScalesAt : kKeyScalesAt) + r % kStrip * 4 + d / 8 % 4;
  }

  // The scale of a block of 4-bit numbers, from the bits of its largest magnitude.
  FATHOM_HD static constexpr uint32_t scale_of(uint32_t largest) {
    if (largest >= 0x7f800000) return 255;
    const uint32_t sixth = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, largest) / 6);
    const uint32_t rounded =
        (sixth + 0x7ffff + (sixth >> 20 & 1)) >> 20;  // exponent and 3 bits; ties to even
    const int exponent = static_cast<int>(rounded >> 3) - 127;
    if (exponent < -23) return 0;
    return exponent > 7 ? 247 : (rounded & 7) + 8 * static_cast<uint32_t>(exponent + 23);
  }

  // On the host: stores and reads a key (or a value, if `value`) as the GPU's ops do. numbers [64], finite.
  static void put(uint8_t* strips, int64_t r, bool value, const float* numbers) {
    const bool fp8 = kFp8Keys && !value;
    for (int64_t j = 0; j < 4; ++j) {
      uint32_t largest = 0;
      for (const int64_t half : {8 * j, 32 + 8 * j})
        for (int64_t d = half; d < half + 8; ++d) {
          const uint32_t magnitude = __builtin_bit_cast(uint32_t, numbers[d]) & 0x7fffffff;
          if (magnitude > largest) largest = magnitude;
        }
      const uint32_t byte               = fp8 ? Fp8KvPages::scale_of(largest) : scale_of(largest);
      const float unit                  = 1 / Fp8KvPages::scale(byte);
      strips[scale_at(r, value, 8 * j)] = static_cast<uint8_t>(byte);
      for (const int64_t half : {8 * j, 32 + 8 * j})
        for (int64_t d = half; d < half + 8; ++d) {
          uint8_t& code = strips[at(r, value, d)];
          if (fp8)
            code = fp8_e4m3(numbers[d] * unit).bits;
          else if (d % 2 == 0)
            code = fp4_e2m1(numbers[d] * unit).bits;
          else
            code = static_cast<uint8_t>(code | fp4_e2m1(numbers[d] * unit).bits << 4);
        }
    }
  }
  static float get(const uint8_t* strips, int64_t r, bool value, int64_t d) {
    const uint8_t code = strips[at(r, value, d)];
    const float scale  = Fp8KvPages::scale(strips[scale_at(r, value, d)]);
    if (kFp8Keys && !value) return static_cast<float>(fp8_e4m3::from_bits(code)) * scale;
    return static_cast<float>(fp4_e2m1::from_bits(code >> (d % 2 * 4) & 15)) * scale;
  }
};
using K8V4KvPages  = Fp4KvPages<true>;
using Nvfp4KvPages = Fp4KvPages<false>;

}  // namespace fathom::kernels
