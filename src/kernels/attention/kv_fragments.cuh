// Tiles of positions of the KV cache (kernels/attention/paged_kv_cache.h) in shared memory, as A fragments of
// mma.sync: what decode attention needs to know of the cache's format.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/ptx.cuh"
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
  // Pipeline stages of a warp: both formats then have as many bytes in flight.
  static constexpr int kStages = 2;
  static constexpr int kHalf   = kKeys * kRowBytes;  // keys, then values
  static constexpr int kBytes  = 2 * kHalf;
  // A tile is kCopies bulk copies of kCopyBytes each, whose sources are kCopyStride elements apart.
  static constexpr int kCopies = 2, kCopyBytes = kHalf,
                       kCopyStride = static_cast<int>(Bf16KvPages::kElements);
  // Row 8 h + g of value(m, i) is dimension 16 i + kDimPerLane g + kDimPerHalf h.
  static constexpr int kDimPerLane = 1, kDimPerHalf = 8;

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

// The same for an FP8 cache, dequantised in registers. ldmatrix moves units of 16 bits, here pairs of codes.
// Of a key's 16 dimensions lane 4 g + t gets 4 t .. 4 t + 4, where a fragment has 2 t, 2 t + 1, 2 t + 8 and
// 2 t + 9. Any order of dimensions gives the same sum of products, so q is loaded in the same order. ldmatrix
// with .trans gives a lane dimensions 2 g and 2 g + 1 of two keys, where a fragment has one dimension of two
// keys in a register. Dequantising separates them, so that row g + 8 of the product is dimension 2 g + 1.
template <int kKeysOf>
class Fp8KvFragments {
 public:
  using Kv                     = Fp8KvPages;
  static constexpr int kKeys   = kKeysOf;
  static constexpr int kStages = 4;
  static constexpr int kStrip = Kv::kStripBytes, kCodes = Kv::kCodeBytes, kScales = 2 * kCodes;
  static constexpr int kBytes  = kKeys / 16 * kStrip;
  static constexpr int kCopies = 1, kCopyBytes = kBytes, kCopyStride = 0;
  static constexpr int kDimPerLane = 2, kDimPerHalf = 1;
  static_assert(Kv::kStrip == 16 && kStrip % 128 == 0);

  __device__ static const uint8_t* source(const Kv& kv, int page, int head, int tile) {
    return kv.strips(page, head) + tile * kBytes;
  }
  // Clears the scales: codes of any bits are then finite numbers, and 0 times them is 0.
  __device__ static void mask_values(char* tile, int first, int last, int lane) {
    for (int key = lane; key < kKeys; key += 32)
      if (key < first || key > last)
        reinterpret_cast<uint32_t*>(tile + key / 16 * kStrip + kScales + Kv::kScaleBytes)[key % 16] = 0;
  }
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
  __device__ Fp8KvFragments(const char* tile, int lane) : tile_(tile), lane_(lane) {
    codes_ =
        ptx::shared_address(tile) + lane % 16 * static_cast<int>(kHeadDim) + (lane / 16 ^ lane / 2 % 4) * 16;
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
  __device__ void value(int m, int i, uint32_t (&a)[4]) {
    const int g = lane_ / 4, t = lane_ % 4;
    if (i % 2 == 0) ptx::ldmatrix_x4_trans(pieces_, (codes_ + m * kStrip + kCodes) ^ (i * 16));
    if (i == 0) {
      const auto* scales = reinterpret_cast<const uint2*>(tile_ + m * kStrip + kScales + Kv::kScaleBytes);
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
  uint32_t scales_[2][2];  // of rows g and g + 8 or keys 2 t .. and 2 t + 8 ..; in even steps and in odd ones
};

}  // namespace fathom::kernels
