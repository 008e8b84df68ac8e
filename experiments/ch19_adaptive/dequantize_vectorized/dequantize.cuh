// A thread takes one word of codes, whose type is the variant's, and stores what they become.
#pragma once

#include "cuda/check.h"
#include "dequantize.h"
#include "experiments/rows.cuh"

namespace fathom::lab::dequantize_vectorized {

inline constexpr int kThreads = 256;

// A narrow code's exponent and mantissa, moved to where a float has its own, are that float times a power of
// two: it had another bias. Subnormal codes become subnormal floats, and the product is right for them too.
struct E4m3 {
  static constexpr int kInByte = 1;
  static __device__ float decoded(uint32_t byte, int) {
    return __uint_as_float((byte & 0x80) << 24 | (byte & 0x7f) << 20) * 0x1p120f;
  }
};
struct E2m1 {
  static constexpr int kInByte = 2;
  static __device__ float decoded(uint32_t byte, int which) {
    const uint32_t code = byte >> 4 * which;
    return __uint_as_float((code & 8) << 28 | (code & 7) << 22) * 0x1p126f;
  }
};

__device__ inline uint32_t byte_of(uint8_t word, int) { return word; }
__device__ inline uint32_t byte_of(uint32_t word, int b) { return word >> 8 * b & 0xff; }
__device__ inline uint32_t byte_of(uint4 word, int b) {
  return byte_of(b < 4 ? word.x : b < 8 ? word.y : b < 12 ? word.z : word.w, b % 4);
}

// 2^(scale - 127). The format's smallest power is subnormal as a float.
__device__ inline float power_of(uint32_t scale) {
  return __uint_as_float(scale == 0 ? 0x00400000 : scale << 23);
}

template <class Format, class Word>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(const Word* __restrict__ codes, const uint8_t* __restrict__ scales,
                      bf16* __restrict__ out, int words) {
  constexpr int kCodes = sizeof(Word) * Format::kInByte;
  static_assert(kCodes <= kBlock && kBlock % kCodes == 0, "a word has one scale");
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= words) return;
  const Word word   = codes[i];
  const float scale = power_of(scales[int64_t{i} * kCodes / kBlock]);

  const auto number = [&](int c) {
    return Format::decoded(byte_of(word, c / Format::kInByte), c % Format::kInByte) * scale;
  };
  bf16* to = out + int64_t{i} * kCodes;
  if constexpr (kCodes == 1) {
    *to = bf16::from_bits(rows::pair_of(number(0), 0) & 0xffff);
  } else {
    // As wide as the numbers at hand, 16 bytes at most.
    uint32_t pairs[kCodes / 2];
#pragma unroll
    for (int c = 0; c < kCodes; c += 2) pairs[c / 2] = rows::pair_of(number(c), number(c + 1));
    if constexpr (kCodes == 2)
      *reinterpret_cast<uint32_t*>(to) = pairs[0];
    else if constexpr (kCodes == 4)
      *reinterpret_cast<uint2*>(to) = {pairs[0], pairs[1]};
    else
#pragma unroll
      for (int v = 0; v < kCodes / 8; ++v)
        reinterpret_cast<uint4*>(to)[v] = {pairs[4 * v], pairs[4 * v + 1], pairs[4 * v + 2],
                                           pairs[4 * v + 3]};
  }
}

template <class Word>
using Kernel = void(const Word* codes, const uint8_t* scales, bf16* out, int words);

// A thread for each word of codes.
template <class Word>
void launch(const Dequantize& p, Kernel<Word>* of_fp4, Kernel<Word>* of_fp8, StreamRef stream) {
  const int64_t n = p.out.size();
  if (n == 0) return;
  const int64_t words = n / (p.fp4 ? 2 : 1) / static_cast<int64_t>(sizeof(Word));
  FATHOM_EXPECT(words < (int64_t{1} << 31) - kThreads, "words are counted in 31 bits");
  const void* codes = p.fp4 ? static_cast<const void*>(p.pairs.data()) : p.eights.data();
  (p.fp4 ? of_fp4 : of_fp8)<<<blocks_for(words, kThreads), kThreads, 0, stream>>>(
      static_cast<const Word*>(codes), p.scales.data(), p.out.data(), static_cast<int>(words));
  FATHOM_LAUNCHED();
}
template <class Word>
void launch(const Dequantize& p, StreamRef stream) {
  launch<Word>(p, dequantize_kernel<E2m1, Word>, dequantize_kernel<E4m3, Word>, stream);
}

}  // namespace fathom::lab::dequantize_vectorized
