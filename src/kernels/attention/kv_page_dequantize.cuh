// Dequantises a page of the KV cache (kernels/attention/kv_layer.h) in shared memory, for wgmma.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/attention/fp4_kv_dequantize.cuh"
#include "kernels/attention/fp4_kv_pages.h"
#include "kernels/attention/fp8_kv_dequantize.cuh"
#include "kernels/attention/paged_kv_cache.h"

namespace fathom::kernels {

// By what keys and values are too small once they are dequantised (fp4_kv_dequantize.cuh).
template <class Kv>
struct KvFactors {
  static constexpr float kKey = 1, kValue = 1;
};
template <bool kFp8Keys>
struct KvFactors<Fp4KvPages<kFp8Keys>> {
  static constexpr float kKey = kFp8Keys ? 1 : kFp4Factor, kValue = kFp4Factor;
};

// Where a quantised format keeps keys and values in a strip of 16 positions.
template <class Kv>
struct QuantizedPage;
template <>
struct QuantizedPage<Fp8KvPages> {
  static constexpr int kKeyScales = 2 * Fp8KvPages::kCodeBytes, kValues = Fp8KvPages::kCodeBytes,
                       kValueScales = kKeyScales + Fp8KvPages::kScaleBytes;
  static constexpr bool kFp4Keys = false, kFp4Values = false;
};
template <bool kFp8Keys>
struct QuantizedPage<Fp4KvPages<kFp8Keys>> {
  using Kv                        = Fp4KvPages<kFp8Keys>;
  static constexpr int kKeyScales = Kv::kKeyScalesAt, kValues = Kv::kKeyBytes,
                       kValueScales = Kv::kValueScalesAt;
  static constexpr bool kFp4Keys = !kFp8Keys, kFp4Values = true;
};

// Converts a page of a head to the layout of Bf16KvPages, whose keys and values are operands of wgmma. By
// kThreads threads, 8 numbers at a time; both pages are in shared memory and accessed without bank conflicts.
// Values of positions from `end` on become finite, whatever the page holds.
template <class Kv, int kThreads>
__device__ inline void dequantize_kv_page(const unsigned char* packed, unsigned char* page, int end) {
  using Page            = QuantizedPage<Kv>;
  constexpr int kPieces = 8, kPositions = kTile;
#pragma unroll 1  // to save registers, which attention is short of
  for (int i = threadIdx.x; i < 2 * kPositions * kPieces; i += kThreads) {
    // A warp has keys only, or values only.
    const int value = i / (kPositions * kPieces), r = i / kPieces % kPositions, piece = i % kPieces;
    const int row              = r % 16;
    const unsigned char* strip = packed + r / 16 * static_cast<int>(Kv::kStripBytes);
    const unsigned char* codes = strip + (value ? Page::kValues : 0);
    uint32_t scales =
        reinterpret_cast<const uint32_t*>(strip + (value ? Page::kValueScales : Page::kKeyScales))[row];
    if (value && r >= end) scales = 0;
    scales         = fp8_scales(scales, scales, piece % 4);
    const auto fp8 = [&] {
      const int at = row * 64 + (piece / 2 ^ row / 2 % 4) * 16 + piece % 2 * 8;
      return dequantize_fp8_eight(*reinterpret_cast<const uint2*>(codes + at), scales);
    };
    const auto fp4 = [&] {
      const int at = row * 32 + (piece / 4 ^ row / 4 % 2) * 16 + piece % 4 * 4;
      return dequantize_fp4_eight(*reinterpret_cast<const uint32_t*>(codes + at), scales);
    };
    uint4 numbers;
    if constexpr (Page::kFp4Keys)
      numbers = fp4();
    else if constexpr (!Page::kFp4Values)
      numbers = fp8();
    else
      numbers = value ? fp4() : fp8();
    reinterpret_cast<uint4*>(page)[(value * kPositions + r) * kPieces + (piece ^ r % 8)] = numbers;
  }
}

}  // namespace fathom::kernels
