// Tiles of positions of the KV cache (kernels/attention/paged_kv_cache.h) in shared memory, as A fragments of
// mma.sync: what decode attention needs to know of the cache's format.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/ptx.cuh"
#include "kernels/attention/fp4_kv_dequantize.cuh"
#include "kernels/attention/fp4_kv_pages.h"
#include "kernels/attention/fp8_kv_dequantize.cuh"
#include "kernels/attention/paged_kv_cache.h"

namespace fathom::kernels {

// A tile of kKeys positions in a warp's shared memory, and a lane's part of its A fragments. key(m, k): keys
// 16 m .. 16 m + 16, dimensions 16 k .. 16 k + 16. value(m, i): dimensions 16 i .. 16 i + 16 of the values of
// the same keys, transposed. Calls must come in the order of k, and of i.
template <int kKeysOf>
class Bf16KvFragments {
 public:
  using Kv                   = Bf16KvPages;
  static constexpr int kKeys = kKeysOf, kRowBytes = 128;
  // Pipeline stages of a warp: all formats then have about as many bytes in flight.
  static constexpr int kStages = 2;
  static constexpr int kHalf   = kKeys * kRowBytes;  // keys, then values
  static constexpr int kBytes  = 2 * kHalf;
  // A tile is kCopies bulk copies of kCopyBytes each, whose sources are kCopyStride elements apart.
  static constexpr int kCopies = 2, kCopyBytes = kHalf,
                       kCopyStride = static_cast<int>(Bf16KvPages::kElements);
  // Row 8 h + g of value(m, i) is dimension dimension(i, h) + kDimPerLane g.
  static constexpr int kDimPerLane = 1;
  __device__ static constexpr int dimension(int i, int h) { return 16 * i + 8 * h; }
  // What key() returns is kKeyFactor times too small, what value() returns kValueFactor times.
  static constexpr float kKeyFactor = 1, kValueFactor = 1;

  __device__ static const bf16* source(const Kv& kv, int page, int head, int tile) {
    return kv.keys(page, head) + tile * (kKeys * static_cast<int>(kHeadDim));
  }
  // Zeroes the values of all keys but first .. last.
  __device__ static void mask_values(char* tile, int first, int last, int lane) {
    auto* values = reinterpret_cast<uint4*>(tile + kHalf);
    for (int piece = lane; piece < kKeys * 8; piece += 32)
      if (piece / 8 < first || piece / 8 > last) values[piece] = {};
  }
  // A row of q as B fragments, in the order of dimensions of key(m, k). A word is two dimensions.
  __device__ static void load_query(uint32_t (&q)[4][2], const uint32_t* row, int lane) {
#pragma unroll
    for (int piece = 0; piece < 8; ++piece) q[piece / 2][piece % 2] = row[piece * 4 + lane % 4];
  }

  // The 16-byte piece c of a row lies at c ^ row % 8 (Bf16KvPages::at), so that the next pair of pieces is an
  // xor of 32 bytes away.
  __device__ Bf16KvFragments(const char* shared, int lane) {
    const uint32_t tile = ptx::shared_address(shared);
    keys_               = tile + lane % 16 * kRowBytes + (lane / 16 ^ lane % 8) * 16;
    values_ = tile + kHalf + (lane % 8 + lane / 16 * 8) * kRowBytes + ((lane / 8 % 2) ^ lane % 8) * 16;
  }
  __device__ void key(int m, int k, uint32_t (&a)[4]) {
    ptx::ldmatrix_x4(a, (keys_ + m * 16 * kRowBytes) ^ (k * 32));
  }
  __device__ void value(int m, int i, uint32_t (&a)[4]) {
    ptx::ldmatrix_x4_trans(a, (values_ + m * 16 * kRowBytes) ^ (i * 32));
  }

 private:
  uint32_t keys_, values_;
};

// Keys in FP8, dequantised in registers. In each strip of 16 positions, of kStrip bytes, codes begin at
// kCodes and scales at kScales. ldmatrix moves units of 16 bits, here pairs of codes. Of a key's 16
// dimensions lane 4 g + t gets 4 t .. 4 t + 4, where a fragment has 2 t, 2 t + 1, 2 t + 8 and 2 t + 9. Any
// order of dimensions gives the same sum of products, so q is loaded in the same order.
template <int kStrip, int kCodes, int kScales>
class Fp8KeyFragments {
 public:
  static constexpr float kKeyFactor = 1;

  __device__ static void load_query(uint32_t (&q)[4][2], const uint32_t* row, int lane) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto four = *reinterpret_cast<const uint2*>(row + k * 8 + lane % 4 * 2);
      q[k][0]         = __byte_perm(four.x, four.y, 0x5410);  // dimensions 4 t and 4 t + 2
      q[k][1]         = __byte_perm(four.x, four.y, 0x7632);  // 4 t + 1 and 4 t + 3
    }
  }

  // The 16-byte piece c of a row lies at c ^ row / 2 % 4 (Fp8KvPages::at). ldmatrix loads keys 0 .. 8 and
  // 8 .. 16 of a piece, then those of the next piece.
  __device__ Fp8KeyFragments(const char* tile, int lane) : tile_(tile), lane_(lane) {
    codes_ = ptx::shared_address(tile) + kCodes + lane % 16 * static_cast<int>(kHeadDim) +
             (lane / 16 ^ lane / 2 % 4) * 16;
  }
  __device__ void key(int m, int k, uint32_t (&a)[4]) {
    const int g = lane_ / 4, t = lane_ % 4;
    if (k % 2 == 0) ptx::ldmatrix_x4(pieces_, (codes_ + m * kStrip) ^ (k * 16));
    if (k == 0) {
      const auto* scales = reinterpret_cast<const uint32_t*>(tile_ + m * kStrip + kScales);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t key_scales = scales[g + 8 * h];
        scales_[h][0]             = fp8_scales(key_scales, key_scales, t / 2);
        scales_[h][1]             = fp8_scales(key_scales, key_scales, t / 2 + 2);
      }
    }
    dequantize_fp8(pieces_[k % 2 * 2], scales_[0][k % 2], a[0], a[2]);
    dequantize_fp8(pieces_[k % 2 * 2 + 1], scales_[1][k % 2], a[1], a[3]);
  }

 private:
  const char* tile_;
  int lane_;
  uint32_t codes_, pieces_[4];
  uint32_t scales_[2][2];  // of rows g and g + 8; in even steps and in odd ones
};

// Values in FP8. ldmatrix with .trans gives a lane dimensions 2 g and 2 g + 1 of two keys, where a fragment
// has one dimension of two keys in a register. Dequantising separates them, so that row g + 8 of the product
// is dimension 2 g + 1.
template <int kStrip, int kCodes, int kScales>
class Fp8ValueFragments {
 public:
  static constexpr int kDimPerLane = 2;
  __device__ static constexpr int dimension(int i, int h) { return 16 * i + h; }
  static constexpr float kValueFactor = 1;

  __device__ Fp8ValueFragments(const char* tile, int lane) : tile_(tile), lane_(lane) {
    codes_ = ptx::shared_address(tile) + kCodes + lane % 16 * static_cast<int>(kHeadDim) +
             (lane / 16 ^ lane / 2 % 4) * 16;
  }
  __device__ void value(int m, int i, uint32_t (&a)[4]) {
    const int g = lane_ / 4, t = lane_ % 4;
    if (i % 2 == 0) ptx::ldmatrix_x4_trans(pieces_, (codes_ + m * kStrip) ^ (i * 16));
    if (i == 0) {
      const auto* scales = reinterpret_cast<const uint2*>(tile_ + m * kStrip + kScales);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint2 value_scales = scales[t + 4 * h];  // 2 t + 8 h and the next
        scales_[h][0]            = fp8_scales(value_scales.x, value_scales.y, g / 4);
        scales_[h][1]            = fp8_scales(value_scales.x, value_scales.y, g / 4 + 2);
      }
    }
    dequantize_fp8(pieces_[i % 2 * 2], scales_[0][i % 2], a[0], a[1]);
    dequantize_fp8(pieces_[i % 2 * 2 + 1], scales_[1][i % 2], a[2], a[3]);
  }

 private:
  const char* tile_;
  int lane_;
  uint32_t codes_, pieces_[4];
  uint32_t scales_[2][2];  // of keys 2 t .. and 2 t + 8 ..; in even steps and in odd ones
};

// Keys in 4 bits: a unit of ldmatrix is four codes, so that one instruction loads 16 keys. Of a key's 32
// dimensions of a half lane 4 g + t gets 8 t .. 8 t + 8, two steps' worth, and all of one block: a scale
// serves both halves. Step k has dimensions 8 t + c and 8 t + 4 + c of half k / 2 in a register, for the two
// codes c of `two`; q is loaded in the same order.
template <int kStrip, int kCodes, int kScales>
class Fp4KeyFragments {
 public:
  static constexpr float kKeyFactor = kFp4Factor;

  __device__ static void load_query(uint32_t (&q)[4][2], const uint32_t* row, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto eight   = *reinterpret_cast<const uint4*>(row + half * 16 + lane % 4 * 4);
      q[2 * half][0]     = __byte_perm(eight.x, eight.z, 0x5410);  // dimensions 8 t and 8 t + 4
      q[2 * half][1]     = __byte_perm(eight.x, eight.z, 0x7632);  // 8 t + 1 and 8 t + 5
      q[2 * half + 1][0] = __byte_perm(eight.y, eight.w, 0x5410);  // 8 t + 2 and 8 t + 6
      q[2 * half + 1][1] = __byte_perm(eight.y, eight.w, 0x7632);  // 8 t + 3 and 8 t + 7
    }
  }

  // The 16-byte piece c of a row lies at c ^ row / 4 % 2 (Fp4KvPages::at). ldmatrix loads keys 0 .. 8 and
  // 8 .. 16 of a half, then those of the other half.
  __device__ Fp4KeyFragments(const char* tile, int lane) : tile_(tile), lane_(lane) {
    codes_ = ptx::shared_address(tile) + kCodes + lane % 16 * (static_cast<int>(kHeadDim) / 2) +
             (lane / 16 ^ lane / 4 % 2) * 16;
  }
  __device__ void key(int m, int k, uint32_t (&a)[4]) {
    const int g = lane_ / 4, t = lane_ % 4, two = k % 2 * 2;
    if (k == 0) {
      ptx::ldmatrix_x4(pieces_, codes_ + m * kStrip);
      const auto* scales = reinterpret_cast<const uint32_t*>(tile_ + m * kStrip + kScales);
#pragma unroll
      for (int h = 0; h < 2; ++h) scales_[h] = fp8_scales(scales[g + 8 * h], scales[g + 8 * h], t);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      a[h]     = dequantize_fp4(pieces_[k / 2 * 2 + h], two, scales_[h]);
      a[h + 2] = dequantize_fp4(pieces_[k / 2 * 2 + h], two + 1, scales_[h]);
    }
  }

 private:
  const char* tile_;
  int lane_;
  uint32_t codes_, pieces_[4];
  uint32_t scales_[2];  // of rows g and g + 8
};

// Values in 4 bits. ldmatrix with .trans gives a lane dimensions 4 g .. 4 g + 4 of a half, of two keys: rows
// g and g + 8 of the product, in an even step and in the next one, are these four.
template <int kStrip, int kCodes, int kScales>
class Fp4ValueFragments {
 public:
  static constexpr int kDimPerLane = 4;
  __device__ static constexpr int dimension(int i, int h) { return i / 2 * 32 + i % 2 * 2 + h; }
  static constexpr float kValueFactor = kFp4Factor;

  __device__ Fp4ValueFragments(const char* tile, int lane) : tile_(tile), lane_(lane) {
    codes_ = ptx::shared_address(tile) + kCodes + lane % 16 * (static_cast<int>(kHeadDim) / 2) +
             (lane / 16 ^ lane / 4 % 2) * 16;
  }
  __device__ void value(int m, int i, uint32_t (&a)[4]) {
    const int g = lane_ / 4, t = lane_ % 4;
    if (i == 0) {
      ptx::ldmatrix_x4_trans(pieces_, codes_ + m * kStrip);
      const auto* scales = reinterpret_cast<const uint2*>(tile_ + m * kStrip + kScales);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint2 value_scales = scales[t + 4 * h];  // 2 t + 8 h and the next
        scales_[h]               = fp8_scales(value_scales.x, value_scales.y, g / 2);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      a[h]     = dequantize_fp4(pieces_[i / 2 * 2], i % 2 * 2 + h, scales_[0]);
      a[h + 2] = dequantize_fp4(pieces_[i / 2 * 2 + 1], i % 2 * 2 + h, scales_[1]);
    }
  }

 private:
  const char* tile_;
  int lane_;
  uint32_t codes_, pieces_[4];
  uint32_t scales_[2];  // of keys 2 t .. and 2 t + 8 ..
};

// A tile of strips: Fp8KvPages, Fp4KvPages.
template <class Kv_, int kKeysOf, int kStagesOf, int kValueScales, class Keys, class Values>
class StripFragments : public Keys, public Values {
 public:
  using Kv                   = Kv_;
  static constexpr int kKeys = kKeysOf, kStages = kStagesOf;
  static constexpr int kStrip = static_cast<int>(Kv::kStripBytes), kBytes = kKeys / 16 * kStrip;
  static constexpr int kCopies = 1, kCopyBytes = kBytes, kCopyStride = 0;
  static_assert(Kv::kStrip == 16 && kStrip % 128 == 0);

  __device__ StripFragments(const char* tile, int lane) : Keys(tile, lane), Values(tile, lane) {}

  __device__ static const uint8_t* source(const Kv& kv, int page, int head, int tile) {
    return kv.strips(page, head) + tile * kBytes;
  }
  // Clears the scales: codes of any bits are then finite numbers, and 0 times them is 0.
  __device__ static void mask_values(char* tile, int first, int last, int lane) {
    for (int key = lane; key < kKeys; key += 32)
      if (key < first || key > last)
        reinterpret_cast<uint32_t*>(tile + key / 16 * kStrip + kValueScales)[key % 16] = 0;
  }
};

template <int kKeys>
using Fp8KvFragments =
    StripFragments<Fp8KvPages, kKeys, 4, 2 * Fp8KvPages::kCodeBytes + Fp8KvPages::kScaleBytes,
                   Fp8KeyFragments<Fp8KvPages::kStripBytes, 0, 2 * Fp8KvPages::kCodeBytes>,
                   Fp8ValueFragments<Fp8KvPages::kStripBytes, Fp8KvPages::kCodeBytes,
                                     2 * Fp8KvPages::kCodeBytes + Fp8KvPages::kScaleBytes>>;

template <int kKeys>
using K8V4KvFragments = StripFragments<
    K8V4KvPages, kKeys, 5, K8V4KvPages::kValueScalesAt,
    Fp8KeyFragments<K8V4KvPages::kStripBytes, 0, K8V4KvPages::kKeyScalesAt>,
    Fp4ValueFragments<K8V4KvPages::kStripBytes, K8V4KvPages::kKeyBytes, K8V4KvPages::kValueScalesAt>>;

template <int kKeys>
using Nvfp4KvFragments = StripFragments<
    Nvfp4KvPages, kKeys, 7, Nvfp4KvPages::kValueScalesAt,
    Fp4KeyFragments<Nvfp4KvPages::kStripBytes, 0, Nvfp4KvPages::kKeyScalesAt>,
    Fp4ValueFragments<Nvfp4KvPages::kStripBytes, Nvfp4KvPages::kKeyBytes, Nvfp4KvPages::kValueScalesAt>>;

}  // namespace fathom::kernels
