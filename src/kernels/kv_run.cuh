// Runs of positions of the KV cache (kernels/kv_tiles.h) in shared memory, as operands of mma.sync: what
// differs between the formats of a cache when a warp attends to it.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/ptx.cuh"
#include "kernels/fp8_kv.cuh"
#include "kernels/kv_tiles.h"

namespace fathom::kernels {

// kKeys positions of a warp in shared memory, and the lane's part of them as A fragments: key (m, k) is of
// keys 16 m .. 16 m + 16 in step k of dimensions, value (m, i) of dimensions 16 i .. and those keys. Steps
// are asked for in order.
template <int kKeysOf>
class Bf16Run {
 public:
  using Kv                   = KvTiles;
  static constexpr int kKeys = kKeysOf, kRowBytes = 128;
  static constexpr int kStages = 2;  // for as many bytes on the way to a warp, whatever the format
  static constexpr int kHalf   = kKeys * kRowBytes;  // keys, then values
  static constexpr int kBytes  = 2 * kHalf;
  // Copies that bring a run, bytes of one, and elements from one's source to the next one's.
  static constexpr int kParts = 2, kPartBytes = kHalf, kApart = static_cast<int>(KvTiles::kElements);
  // Row 8 h + g of value (m, i) is dimension 16 i + kOfLane g + kOfHalf h.
  static constexpr int kOfLane = 1, kOfHalf = 8;

  __device__ static const bf16* source(const Kv& kv, int page, int head, int run) {
    return kv.keys(page, head) + run * (kKeys * static_cast<int>(kHeadDim));
  }
  // Values of other keys than first .. last become zero.
  __device__ static void clear(char* run, int first, int last, int lane) {
    auto* values = reinterpret_cast<uint4*>(run + kHalf);
    for (int piece = lane; piece < kKeys * 8; piece += 32)
      if (piece / 8 < first || piece / 8 > last) values[piece] = {};
  }
  // A row of q as B fragments, in the order of key(m, k); a word is two dimensions.
  __device__ static void load_query(uint32_t (&q)[4][2], const uint32_t* row, int lane) {
#pragma unroll
    for (int piece = 0; piece < 8; ++piece) q[piece / 2][piece % 2] = row[piece * 4 + lane % 4];
  }

  // Pieces of a row lie at piece ^ row % 8 (KvTiles::at), so from pair of pieces to pair is an xor of 32.
  __device__ Bf16Run(const char* in_shared, int lane) {
    const uint32_t run = ptx::shared_address(in_shared);
    keys_              = run + lane % 16 * kRowBytes + (lane / 16 ^ lane % 8) * 16;
    values_ = run + kHalf + (lane % 8 + lane / 16 * 8) * kRowBytes + ((lane / 8 % 2) ^ lane % 8) * 16;
  }
  __device__ void key(int m, int k, uint32_t (&a)[4]) {
    ptx::load_matrices(a, (keys_ + m * 16 * kRowBytes) ^ (k * 32));
  }
  __device__ void value(int m, int i, uint32_t (&a)[4]) {
    ptx::load_matrices_transposed(a, (values_ + m * 16 * kRowBytes) ^ (i * 32));
  }

 private:
  uint32_t keys_, values_;
};

// Lane 4 g + t gets 4 dimensions 4 t .. of a key's 16 from ldmatrix, where a fragment wants 2 t, 2 t + 1 and
// 2 t + 8, 2 t + 9. The order in which products are added is free, so q is taken in the same order.
// Transposed, it gets dimensions 2 g and 2 g + 1 of two keys, where a fragment wants one dimension of two
// keys in a register: unpacking parts them, and row g + 8 of the product is dimension 2 g + 1.
template <int kKeysOf>
class Fp8Run {
 public:
  using Kv                     = Fp8KvTiles;
  static constexpr int kKeys   = kKeysOf;
  static constexpr int kStages = 4;
  static constexpr int kStrip = Kv::kStripBytes, kCodes = Kv::kCodeBytes, kScales = 2 * kCodes;
  static constexpr int kBytes = kKeys / 16 * kStrip;
  static constexpr int kParts = 1, kPartBytes = kBytes, kApart = 0;
  static constexpr int kOfLane = 2, kOfHalf = 1;
  static_assert(Kv::kStrip == 16 && kStrip % 128 == 0);

  __device__ static const uint8_t* source(const Kv& kv, int page, int head, int run) {
    return kv.strips(page, head) + run * kBytes;
  }
  // The same as far as weights of 0 see it: all codes are numbers, if their scale is one.
  __device__ static void clear(char* run, int first, int last, int lane) {
    for (int key = lane; key < kKeys; key += 32)
      if (key < first || key > last)
        reinterpret_cast<uint32_t*>(run + key / 16 * kStrip + kScales + Kv::kScaleBytes)[key % 16] = 0;
  }
  __device__ static void load_query(uint32_t (&q)[4][2], const uint32_t* row, int lane) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const auto four = *reinterpret_cast<const uint2*>(row + k * 8 + lane % 4 * 2);
      q[k][0]         = __byte_perm(four.x, four.y, 0x5410);  // dimensions 4 t and 4 t + 2
      q[k][1]         = __byte_perm(four.x, four.y, 0x7632);  // 4 t + 1 and 4 t + 3
    }
  }

  // Pieces of a row lie at piece ^ row / 2 % 4 (Fp8KvTiles::at). ldmatrix has keys 0 .. 8 and 8 .. 16 of a
  // piece, then those of the next.
  __device__ Fp8Run(const char* run, int lane) : run_(run), lane_(lane) {
    codes_ =
        ptx::shared_address(run) + lane % 16 * static_cast<int>(kHeadDim) + (lane / 16 ^ lane / 2 % 4) * 16;
  }
  __device__ void key(int m, int k, uint32_t (&a)[4]) {
    const int g = lane_ / 4, t = lane_ % 4;
    if (k % 2 == 0) ptx::load_matrices(pieces_, (codes_ + m * kStrip) ^ (k * 16));
    if (k == 0) {
      const auto* scales = reinterpret_cast<const uint32_t*>(run_ + m * kStrip + kScales);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t of_key = scales[g + 8 * h];
        scales_[h][0]         = fp8_scales(of_key, of_key, t / 2);
        scales_[h][1]         = fp8_scales(of_key, of_key, t / 2 + 2);
      }
    }
    unpack_fp8(pieces_[k % 2 * 2], scales_[0][k % 2], a[0], a[2]);
    unpack_fp8(pieces_[k % 2 * 2 + 1], scales_[1][k % 2], a[1], a[3]);
  }
  __device__ void value(int m, int i, uint32_t (&a)[4]) {
    const int g = lane_ / 4, t = lane_ % 4;
    if (i % 2 == 0) ptx::load_matrices_transposed(pieces_, (codes_ + m * kStrip + kCodes) ^ (i * 16));
    if (i == 0) {
      const auto* scales = reinterpret_cast<const uint2*>(run_ + m * kStrip + kScales + Kv::kScaleBytes);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint2 of_keys = scales[t + 4 * h];  // 2 t + 8 h and the next
        scales_[h][0]       = fp8_scales(of_keys.x, of_keys.y, g / 4);
        scales_[h][1]       = fp8_scales(of_keys.x, of_keys.y, g / 4 + 2);
      }
    }
    unpack_fp8(pieces_[i % 2 * 2], scales_[0][i % 2], a[0], a[1]);
    unpack_fp8(pieces_[i % 2 * 2 + 1], scales_[1][i % 2], a[2], a[3]);
  }

 private:
  const char* run_;
  int lane_;
  uint32_t codes_, pieces_[4];
  uint32_t scales_[2][2];  // of rows g and g + 8 or keys 2 t .. and 2 t + 8 ..; in even steps and in odd ones
};

}  // namespace fathom::kernels
