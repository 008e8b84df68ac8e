// u = W1 x + b1;  a = g sigmoid(alpha g) (l + 1);  y += weight (W2 a + b2)      x and a in int8, W in MXFP4
//
// bytes   1.5 H I 17/16 of each expert that has a token
// ops     6 H I for each token and expert of it, integers of 8 bits; 1/32 as many in fp32
// limit   few tokens: memory bandwidth; many: the units that multiply bytes
// idea    A block of 32 numbers has one scale on either side, so its products are summed in integers. A byte
//         shuffle makes of a code its number, doubled, plus 12: 0 to 24, the unsigned factor that x86's
//         instruction for products of bytes takes beside a signed one. What the 12 adds, 12 times the sum of
//         a block's activations, is known when these are quantized, and subtracted where the sum begins.
//         32-bit lanes are blocks: words of neighbouring blocks are transposed before they are unpacked,
//         hence no sum across lanes until the end of a row, and one multiplication by each side's scale for
//         a whole vector of blocks.
//         Pairs of products are summed in 16 bits. Two of 24 x 127 do not saturate; sums of sixteen may
//         wrap, but what is left without the offset, at most 16 x 12 x 127, fits again.
//         Up to 8 rows share weights in registers. For more, panels of 24 outputs are unpacked once and stay
//         in L2. Both sum in one order, so that a row's bits do not depend on other rows
#include <cmath>
#include <cstring>
#include <limits>

#include "core/thread_pool.h"
#include "kernels/gemm/gemm_scratch_cpu.h"
#include "kernels/gemm/panel_scheduler_cpu.h"
#include "kernels/moe/experts_int8.h"

#define HWY_DISABLE_PCLMUL_AES  // not part of x86-64-v3; else Highway adds code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/experts_int8_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, because it is compiled for each instruction set.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/moe/expert_layer_cpu.h"

#ifndef FATHOM_KERNELS_EXPERTS_INT8_CPU
#define FATHOM_KERNELS_EXPERTS_INT8_CPU
namespace fathom::kernels {
namespace {

// Blocks of a row are padded to a multiple of this, the 32-bit lanes of a vector.
constexpr int64_t kBlockPadding = 8;
// A block of a row: 32 values, 4 bytes of offsets, a scale.
constexpr int64_t kRowBlockBytes = kMxfp4Block + 4 + 4;
// A block of a panel's weights: 32 values, a scale.
constexpr int64_t kPanelBlockBytes = kMxfp4Block + 4;

constexpr int64_t padded_blocks(int64_t depth) { return round_up(depth / kMxfp4Block, kBlockPadding); }

struct Int8TileScratch {
  uint8_t* panel;  // kPanel outputs, unpacked
  float* sums;     // [kRowBlock, kPanel]

  Int8TileScratch(int64_t depth, ScratchAllocator& allocator)
      : panel(allocator.take<uint8_t>(kPanel * padded_blocks(depth) * kPanelBlockBytes)),
        sums(allocator.take<float>(kSums)) {}

  static int64_t bytes(int64_t depth) {
    ScratchAllocator counter;
    Int8TileScratch(depth, counter);
    return counter.used();
  }
};

struct ExpertsInt8Scratch {
  SortedRows sorted;
  uint8_t* x;                      // [T], quantized rows of H
  const uint8_t** x_rows;          // [T top_k], sorted
  float* activations;              // [T top_k, I], sorted
  uint8_t* quantized;              // [T top_k], sorted, quantized rows of I
  const uint8_t** quantized_rows;  // [T top_k], sorted
  float* out;                      // [T top_k, H], by expert row: W2 a + b2
  int64_t tile_depth, tile_bytes;
  std::byte* tiles;

  ExpertsInt8Scratch(int64_t rows, int64_t top_k, int64_t num_experts, int64_t hidden, int64_t intermediate,
                     int threads, ScratchAllocator& allocator)
      : sorted(rows * top_k, num_experts, allocator),
        x(allocator.take<uint8_t>(rows * padded_blocks(hidden) * kRowBlockBytes)),
        x_rows(allocator.take<const uint8_t*>(rows * top_k)),
        activations(allocator.take<float>(rows * top_k * intermediate)),
        quantized(allocator.take<uint8_t>(rows * top_k * padded_blocks(intermediate) * kRowBlockBytes)),
        quantized_rows(allocator.take<const uint8_t*>(rows * top_k)),
        out(allocator.take<float>(rows * top_k * hidden)),
        tile_depth(std::max(hidden, intermediate)),
        tile_bytes(Int8TileScratch::bytes(tile_depth)),
        tiles(allocator.take<std::byte>(threads * tile_bytes)) {}

  Int8TileScratch tile_of(int worker) const {
    ScratchAllocator allocator({tiles + worker * tile_bytes, {tile_bytes}});
    return Int8TileScratch(tile_depth, allocator);
  }
};

}  // namespace
}  // namespace fathom::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

// Other instruction sets use the reference implementation.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

namespace int8 {

using FloatTag = hn::CappedTag<float, 8>;
using WordTag  = hn::RebindToUnsigned<FloatTag>;
using IntTag   = hn::RebindToSigned<FloatTag>;
using ByteTag  = hn::Repartition<uint8_t, FloatTag>;
using ShortTag = hn::Repartition<int16_t, FloatTag>;
using Floats   = hn::Vec<FloatTag>;
using Ints     = hn::Vec<IntTag>;
using Shorts   = hn::Vec<ShortTag>;
using Bytes    = hn::Vec<ByteTag>;

// 256 bits with AVX-512 too: on Zen 4, which runs 512 in halves, longer steps gain nothing, and rows of few
// blocks fill half of one.
//
// A step is a vector of blocks, a block to each 32-bit lane: lane 4 m + i is block kHalves i + m, which is
// what a transposition inside each half of 128 bits makes of 4 vectors of packed weights.
inline constexpr int64_t kBlocks  = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
inline constexpr int64_t kHalves  = kBlocks / 4;
inline constexpr int64_t kBytes   = 4 * kBlocks;  // of a vector
inline constexpr int64_t kVectors = kMxfp4Block / 4;
constexpr int64_t lane_of(int64_t block) { return block % kHalves * 4 + block / kHalves; }

// Vector 2 w + odd of a step has numbers 8 w + 2 j + odd of each block, j < 4, as bytes j of its lane: word w
// of a block's packed weights holds them.

// ---- rows ----

// A quantized row, by step: kVectors vectors of values; one of offsets, for each half of a lane -kOffset
// times the sum of the values that it multiplies; one of scales.
inline constexpr int64_t kRowStep = (kVectors + 2) * kBytes;
inline constexpr int kOffset      = 12;

// `values` are aligned.
HWY_INLINE void store_block(const int8_t* values, float scale, int64_t lane, uint8_t* step) {
  const hn::CappedTag<int8_t, 16> d8;
  // The words of vectors 2 w, 2 w + 2, 2 w + 1 and 2 w + 3, from 16 values.
  alignas(16) static constexpr int8_t kWords[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15};
  const auto order                               = hn::Load(d8, kWords);
  const auto first                               = hn::TableLookupBytes(hn::Load(d8, values), order),
             second                              = hn::TableLookupBytes(hn::Load(d8, values + 16), order);
  alignas(16) int8_t words[kMxfp4Block];
  hn::Store(first, d8, words);
  hn::Store(second, d8, words + 16);
  static constexpr int64_t kVectorOf[8] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (int64_t i = 0; i < 8; ++i) std::memcpy(step + kVectorOf[i] * kBytes + lane * 4, words + 4 * i, 4);

  // Sums of neighbours, then of the words: the first halves' in 16-bit lane 0, the second ones' in lane 1.
  const __m128i ones = _mm_set1_epi8(1);
  __m128i sums       = _mm_add_epi16(_mm_maddubs_epi16(ones, first.raw), _mm_maddubs_epi16(ones, second.raw));
  sums               = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0x4e));
  sums               = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0xb1));
  const int32_t offsets = _mm_cvtsi128_si32(_mm_mullo_epi16(sums, _mm_set1_epi16(-kOffset)));
  std::memcpy(step + kVectors * kBytes + lane * 4, &offsets, sizeof offsets);
  std::memcpy(step + (kVectors + 1) * kBytes + lane * 4, &scale, sizeof scale);
}

// `depth` is a multiple of 32.
HWY_NOINLINE void quantize_row(const float* x, int64_t depth, uint8_t* row) {
  const hn::CappedTag<float, 8> d;
  constexpr int64_t kLanes = 8;
  const hn::Rebind<int32_t, decltype(d)> ints;
  const hn::Rebind<int8_t, decltype(d)> narrow;
  const int64_t blocks = depth / kMxfp4Block;
  for (int64_t b = 0; b < round_up(blocks, kBlocks); ++b, x += kMxfp4Block) {
    HWY_ALIGN int8_t values[kMxfp4Block] = {};
    float scale                          = 0;
    if (b < blocks) {
      auto largest = hn::Zero(d);
      bool finite  = true;
      for (int64_t i = 0; i < kMxfp4Block; i += kLanes) {
        const auto v = hn::LoadU(d, x + i);
        finite       = finite && hn::AllTrue(d, hn::IsFinite(v));
        largest      = hn::Max(largest, hn::Abs(v));
      }
      scale =
          finite ? hn::GetLane(hn::MaxOfLanes(d, largest)) / 127 : std::numeric_limits<float>::quiet_NaN();
      if (scale > 0)
        for (int64_t i = 0; i < kMxfp4Block; i += kLanes) {
          const auto v = hn::Div(hn::LoadU(d, x + i), hn::Set(d, scale));
          const auto c = hn::Clamp(hn::NearestInt(v), hn::Set(ints, -127), hn::Set(ints, 127));
          hn::Store(hn::DemoteTo(narrow, c), narrow, values + i);
        }
    }
    store_block(values, scale, lane_of(b % kBlocks), row + b / kBlocks * kRowStep);
  }
}

// ---- weights ----

struct Codes {
  const uint8_t* blocks;  // 16 bytes each
  const uint8_t* scales;
  int64_t count;   // of an output's blocks
  int64_t stride;  // blocks from one output's first to the next's

  HWY_INLINE const uint8_t* blocks_of(int64_t output, int64_t block) const {
    return blocks + (output * stride + block) * (kMxfp4Block / 2);
  }
  HWY_INLINE const uint8_t* scales_of(int64_t output, int64_t block) const {
    return scales + output * stride + block;
  }
};

Codes codes_of(const Mxfp4Matrices& w, int64_t e) {
  return {w.blocks.data() + e * w.blocks.stride(0), w.scales.data() + e * w.scales.stride(0),
          w.scales.extent(2), w.scales.stride(1)};
}

// Words w of a step's blocks, from vectors of packed blocks.
HWY_INLINE void transpose(const Bytes* packed, Bytes* words) {
  const ByteTag bytes;
  const WordTag d32;
  const hn::Repartition<uint64_t, FloatTag> d64;
  const auto p0 = hn::BitCast(d32, packed[0]), p1 = hn::BitCast(d32, packed[1]),
             p2 = hn::BitCast(d32, packed[2]), p3 = hn::BitCast(d32, packed[3]);
  const auto low01  = hn::BitCast(d64, hn::InterleaveLower(d32, p0, p1)),
             low23  = hn::BitCast(d64, hn::InterleaveLower(d32, p2, p3)),
             high01 = hn::BitCast(d64, hn::InterleaveUpper(d32, p0, p1)),
             high23 = hn::BitCast(d64, hn::InterleaveUpper(d32, p2, p3));
  words[0]          = hn::BitCast(bytes, hn::InterleaveLower(d64, low01, low23));
  words[1]          = hn::BitCast(bytes, hn::InterleaveUpper(d64, low01, low23));
  words[2]          = hn::BitCast(bytes, hn::InterleaveLower(d64, high01, high23));
  words[3]          = hn::BitCast(bytes, hn::InterleaveUpper(d64, high01, high23));
}

// Doubled numbers plus kOffset, of the low nibbles and of the high ones.
HWY_INLINE void unpack(Bytes words, Bytes& even, Bytes& odd) {
  const ByteTag bytes;
  const hn::Repartition<uint16_t, FloatTag> shorts;
  HWY_ALIGN static constexpr uint8_t kNumbers[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                     12, 11, 10, 9,  8,  6,  4,  0};
  const Bytes numbers = hn::LoadDup128(bytes, kNumbers), low = hn::Set(bytes, uint8_t{15});
  even = hn::TableLookupBytes(numbers, hn::And(words, low));
  odd  = hn::TableLookupBytes(numbers,
                              hn::And(hn::BitCast(bytes, hn::ShiftRight<4>(hn::BitCast(shorts, words))), low));
}

// The scale of each lane's block, from kBlocks bytes that are repeated in each half. A byte becomes the
// exponent of a float; 0 becomes the subnormal 2^-127.
HWY_INLINE Floats expand_scales(Bytes scales) {
  const FloatTag d;
  const WordTag words;
  const ByteTag bytes;
  struct ToTop {
    uint8_t index[kBytes];
    constexpr ToTop() : index() {
      for (auto& i : index) i = 128;  // a zero
      for (int64_t b = 0; b < kBlocks; ++b) index[4 * lane_of(b) + 3] = static_cast<uint8_t>(b);
    }
  };
  alignas(64) static constexpr ToTop kToTop;
  const auto top = hn::BitCast(words, hn::TableLookupBytesOr0(scales, hn::Load(bytes, kToTop.index)));
  return hn::BitCast(d, hn::Max(hn::ShiftRight<1>(top), hn::Set(words, 0x00400000u)));
}

HWY_INLINE Bytes repeated_scales(const uint8_t* scales) {
  const ByteTag bytes;
  uint64_t all;
  std::memcpy(&all, scales, sizeof all);
  return hn::BitCast(bytes, hn::Set(hn::Repartition<uint64_t, FloatTag>(), all));
}

// The step of an output's blocks from `block` on: 4 vectors of packed blocks, and scales.
HWY_INLINE Floats load_step(const Codes& w, int64_t output, int64_t block, Bytes* packed) {
  const ByteTag bytes;
  const uint8_t* from = w.blocks_of(output, block);
#pragma GCC unroll 4
  for (int64_t i = 0; i < 4; ++i) packed[i] = hn::LoadU(bytes, from + i * kBytes);
  return expand_scales(repeated_scales(w.scales_of(output, block)));
}

// The last step, which is not full.
HWY_INLINE Floats load_last_step(const Codes& w, int64_t output, int64_t block, Bytes* packed) {
  const ByteTag bytes;
  const WordTag words;
  const int64_t left = w.count - block;
  const auto* from   = reinterpret_cast<const uint32_t*>(w.blocks_of(output, block));
  for (int64_t i = 0; i < 4; ++i) {
    const auto there = static_cast<size_t>(std::clamp<int64_t>(4 * left - i * kBlocks, 0, kBlocks));
    packed[i] = hn::BitCast(bytes, hn::MaskedLoad(hn::FirstN(words, there), words, from + i * kBlocks));
  }
  uint8_t scales[kBlocks];  // 1 for missing blocks: 0 times a subnormal would be slow
  std::memset(scales, 127, sizeof scales);
  std::copy_n(w.scales_of(output, block), left, scales);
  return expand_scales(repeated_scales(scales));
}

// ---- products ----

// Adds products of unsigned with signed bytes, two of them to each 16 bits. The empty statement keeps sums in
// this order: else g++ takes all products first, has no registers for them, and stores them.
HWY_INLINE Shorts add_products(Shorts sum, Bytes weights, Bytes values) {
  sum = hn::Add(sum, Shorts{_mm256_maddubs_epi16(weights.raw, values.raw)});
  asm("" : "+v"(sum.raw));
  return sum;
}

// The sums of each lane's block in 32 bits.
HWY_INLINE Ints block_sums(Shorts sum) { return Ints{_mm256_madd_epi16(sum.raw, _mm256_set1_epi16(1))}; }

HWY_INLINE Bytes row_values(const uint8_t* step, int64_t vector) {
  return hn::Load(ByteTag(), step + vector * kBytes);
}
HWY_INLINE Shorts row_offsets(const uint8_t* step) {
  return hn::Load(ShortTag(), reinterpret_cast<const int16_t*>(step + kVectors * kBytes));
}
// Scales first: their product is far from both ends of fp32, where the product of one of them with a sum need
// not be.
HWY_INLINE Floats add_scaled(Floats to, Shorts sum, const uint8_t* step, Floats scale) {
  const FloatTag d;
  const Floats of_row = hn::Load(d, reinterpret_cast<const float*>(step + (kVectors + 1) * kBytes));
  return hn::MulAdd(hn::ConvertTo(d, block_sums(sum)), hn::Mul(of_row, scale), to);
}
// Weights were doubled.
HWY_INLINE float total(Floats sums) { return 0.5f * hn::GetLane(hn::SumOfLanes(FloatTag(), sums)); }

// Up to this many rows read weights from memory directly into registers.
inline constexpr int64_t kMaxGemvRows = 8;

// Sums for outputs [begin, end): sums(r, n) = sums[r * kPanel + n - begin].
template <int64_t kRows>
HWY_NOINLINE void gemv_rows(const Codes& w, const uint8_t* const* rows, int64_t begin, int64_t end,
                            float* HWY_RESTRICT sums) {
  // Prefetches the weights of eight outputs ahead: 12 KB with 2880 inputs.
  constexpr int64_t kPrefetchedOutputs = 8;
  const int64_t whole                  = w.count / kBlocks * kBlocks;
  for (int64_t n = begin; n < end; ++n) {
    Floats of_row[kRows];
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) of_row[r] = hn::Zero(FloatTag());
    const auto step = [&](int64_t block, const Bytes* packed, Floats scale) HWY_ATTR
        __attribute__((always_inline)) {
      const int64_t at = block / kBlocks * kRowStep;
      Bytes words[4];
      Shorts sum[kRows];
      transpose(packed, words);
#pragma GCC unroll 8
      for (int64_t r = 0; r < kRows; ++r) sum[r] = row_offsets(rows[r] + at);
#pragma GCC unroll 4
      for (int64_t i = 0; i < 4; ++i) {
        Bytes even, odd;
        unpack(words[i], even, odd);
#pragma GCC unroll 8
        for (int64_t r = 0; r < kRows; ++r) {
          sum[r] = add_products(sum[r], even, row_values(rows[r] + at, 2 * i));
          sum[r] = add_products(sum[r], odd, row_values(rows[r] + at, 2 * i + 1));
        }
      }
#pragma GCC unroll 8
      for (int64_t r = 0; r < kRows; ++r) of_row[r] = add_scaled(of_row[r], sum[r], rows[r] + at, scale);
    };
    Bytes packed[4];
    for (int64_t block = 0; block < whole; block += kBlocks) {
      const uint8_t* ahead = w.blocks_of(n + kPrefetchedOutputs, block);
      for (int64_t line = 0; line < kBlocks * kMxfp4Block / 2; line += 64) hwy::Prefetch(ahead + line);
      const Floats scale = load_step(w, n, block, packed);
      step(block, packed, scale);
    }
    if (whole < w.count) {
      const Floats scale = load_last_step(w, n, whole, packed);
      step(whole, packed, scale);
    }
    for (int64_t r = 0; r < kRows; ++r) sums[r * kPanel + n - begin] = total(of_row[r]);
  }
}

// An unpacked output, by step: kVectors vectors of numbers, one of scales.
inline constexpr int64_t kPanelStep = (kVectors + 1) * kBytes;

HWY_NOINLINE void unpack_panel(const Codes& w, int64_t begin, int64_t end, uint8_t* panel) {
  const ByteTag bytes;
  for (int64_t n = begin; n < end; ++n)
    for (int64_t block = 0; block < w.count; block += kBlocks, panel += kPanelStep) {
      Bytes packed[4], words[4];
      const Floats scale =
          block + kBlocks <= w.count ? load_step(w, n, block, packed) : load_last_step(w, n, block, packed);
      transpose(packed, words);
#pragma GCC unroll 4
      for (int64_t i = 0; i < 4; ++i) {
        Bytes even, odd;
        unpack(words[i], even, odd);
        hn::Store(even, bytes, panel + 2 * i * kBytes);
        hn::Store(odd, bytes, panel + (2 * i + 1) * kBytes);
      }
      hn::Store(scale, FloatTag(), reinterpret_cast<float*>(panel + kVectors * kBytes));
    }
}

// Four rows of 2880 numbers, 15 KB, stay in L1 while the outputs of a panel pass by. Larger tiles are slower.
inline constexpr int64_t kTileRows = 4, kTileOutputs = 2;
static_assert(kPanel % kTileOutputs == 0 && kMxfp4Block % kTileOutputs == 0);  // outputs are whole blocks

// Sums of kRows rows with kTileOutputs outputs of a panel: sums(r, c) = sums[r * kPanel + c].
template <int64_t kRows>
HWY_NOINLINE void gemm_tile(const uint8_t* panel, int64_t steps, const uint8_t* const* rows,
                            float* HWY_RESTRICT sums) {
  const ByteTag bytes;
  constexpr int64_t kTile = kRows * kTileOutputs;
  Floats of_tile[kTile];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTile; ++i) of_tile[i] = hn::Zero(FloatTag());
  for (int64_t s = 0; s < steps; ++s) {
    const uint8_t* weights = panel + s * kPanelStep;
    const int64_t at       = s * kRowStep;
    Shorts sum[kTile];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTile; ++i) sum[i] = row_offsets(rows[i / kTileOutputs] + at);
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) {
      Bytes w[kTileOutputs];
#pragma GCC unroll 4
      for (int64_t c = 0; c < kTileOutputs; ++c)
        w[c] = hn::Load(bytes, weights + c * steps * kPanelStep + v * kBytes);
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRows; ++r) {
        Bytes values = row_values(rows[r] + at, v);
        asm("" : "+v"(values.raw));  // else g++ loads them for each output
#pragma GCC unroll 4
        for (int64_t c = 0; c < kTileOutputs; ++c)
          sum[r * kTileOutputs + c] = add_products(sum[r * kTileOutputs + c], w[c], values);
      }
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTile; ++i) {
      const uint8_t* scales = weights + i % kTileOutputs * steps * kPanelStep + kVectors * kBytes;
      of_tile[i]            = add_scaled(of_tile[i], sum[i], rows[i / kTileOutputs] + at,
                                         hn::Load(FloatTag(), reinterpret_cast<const float*>(scales)));
    }
  }
  for (int64_t i = 0; i < kTile; ++i) sums[i / kTileOutputs * kPanel + i % kTileOutputs] = total(of_tile[i]);
}

// The products of `count` quantized rows with outputs [begin, end), panel by panel. For each panel and block
// of rows calls take(first row, rows, first output, end output, sums), with sums(r, n) = sums[r * kPanel + n
// - first output].
template <class Take>
void dot_products(const Codes& w, const uint8_t* const* rows, int64_t count, int64_t begin, int64_t end,
                  const Int8TileScratch& scratch, const Take& take) {
  static constexpr decltype(&gemv_rows<1>) kGemvRows[kMaxGemvRows] = {
      gemv_rows<1>, gemv_rows<2>, gemv_rows<3>, gemv_rows<4>,
      gemv_rows<5>, gemv_rows<6>, gemv_rows<7>, gemv_rows<8>};
  static constexpr decltype(&gemm_tile<1>) kTiles[kTileRows] = {gemm_tile<1>, gemm_tile<2>, gemm_tile<3>,
                                                                gemm_tile<4>};
  const int64_t steps                                        = round_up(w.count, kBlocks) / kBlocks;
  for (int64_t n0 = begin; n0 < end; n0 += kPanel) {
    const int64_t n1 = std::min(n0 + kPanel, end);
    if (count <= kMaxGemvRows) {
      kGemvRows[count - 1](w, rows, n0, n1, scratch.sums);
      take(0, count, n0, n1, scratch.sums);
      continue;
    }
    unpack_panel(w, n0, n1, scratch.panel);
    for (int64_t first = 0; first < count; first += kRowBlock) {
      const int64_t here = std::min(count - first, kRowBlock);
      for (int64_t r = 0; r < here; r += kTileRows)
        for (int64_t c = 0; c < n1 - n0; c += kTileOutputs)
          kTiles[std::min(here - r, kTileRows) - 1](scratch.panel + c * steps * kPanelStep, steps,
                                                    rows + first + r, scratch.sums + r * kPanel + c);
      take(first, here, n0, n1, scratch.sums);
    }
  }
}

// The products of each active expert's rows with all its outputs, on all threads: calls take(expert, first
// sorted row, rows, first output, end output, sums).
template <class Take>
void expert_products(const ExpertsTask& task, const ExpertsInt8Scratch& s, int64_t active,
                     const Mxfp4Matrices& matrices, int64_t outputs, const uint8_t* const* rows,
                     const Take& take) {
  PanelScheduler queue(active, round_up(outputs, kPanel) / kPanel, task.threads.threads());
  task.threads.run_shares([&](int worker) {
    const Int8TileScratch tile = s.tile_of(worker);
    for (auto run = queue.take(); run.begin < run.end; run = queue.take()) {
      const int64_t e = s.sorted.active[run.matrix], first = s.sorted.first[e],
                    count = s.sorted.first[e + 1] - first;
      dot_products(codes_of(matrices, e), rows + first, count, run.begin * kPanel,
                   std::min(run.end * kPanel, outputs), tile,
                   [&](int64_t row, int64_t some, int64_t n0, int64_t n1, const float* sums) {
                     take(e, first + row, some, n0, n1, sums);
                   });
    }
  });
}

inline constexpr int64_t kNumbersOfOneThread = 1 << 14;

// The first layer: quantized activations of all expert rows.
void up_projection(const ExpertsTask& task, const ExpertsInt8Scratch& s, int64_t active) {
  const ExpertWeights& w     = task.w;
  const int64_t intermediate = task.intermediate(), top_k = task.top_k();
  const int64_t x_stride = padded_blocks(task.hidden()) * kRowBlockBytes,
                a_stride = padded_blocks(intermediate) * kRowBlockBytes;

  task.threads.parallel_for(task.tokens(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      quantize_row(task.x.data() + t * task.x.stride(0), task.hidden(), s.x + t * x_stride);
    for (int64_t i = begin * top_k; i < end * top_k; ++i) {
      s.x_rows[i]         = s.x + s.sorted.rows[i] / top_k * x_stride;
      s.quantized_rows[i] = s.quantized + i * a_stride;
    }
  });

  expert_products(task, s, active, std::get<Mxfp4Matrices>(w.mlp1), 2 * intermediate, s.x_rows,
                  [&](int64_t e, int64_t first, int64_t count, int64_t n0, int64_t n1, const float* sums) {
                    HWY_ALIGN float u[2 * round_up(kPanel / 2, kBlocks)] = {};
                    HWY_ALIGN float a[round_up(kPanel / 2, kBlocks)];
                    for (int64_t r = 0; r < count; ++r) {
                      for (int64_t n = n0; n < n1; ++n)
                        u[n - n0] = sums[r * kPanel + n - n0] + static_cast<float>(w.mlp1_bias(e, n));
                      swiglu(FloatTag(), u, (n1 - n0) / 2, w.limit, w.alpha, a);
                      std::copy_n(a, (n1 - n0) / 2, s.activations + (first + r) * intermediate + n0 / 2);
                    }
                  });

  const auto quantize = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      quantize_row(s.activations + i * intermediate, intermediate, s.quantized + i * a_stride);
  };
  // To wake a thread takes longer than to quantize a few thousand numbers.
  const int64_t rows = s.sorted.first[task.num_experts()];
  if (rows * intermediate <= kNumbersOfOneThread)
    quantize(0, rows);
  else
    task.threads.parallel_for(rows, 1, quantize);
}

void down_projection(const ExpertsTask& task, const ExpertsInt8Scratch& s, int64_t active) {
  const int64_t hidden = task.hidden();
  expert_products(task, s, active, std::get<Mxfp4Matrices>(task.w.mlp2), hidden, s.quantized_rows,
                  [&](int64_t e, int64_t first, int64_t count, int64_t n0, int64_t n1, const float* sums) {
                    for (int64_t r = 0; r < count; ++r) {
                      float* out = s.out + s.sorted.rows[first + r] * hidden;
                      for (int64_t n = n0; n < n1; ++n)
                        out[n] = sums[r * kPanel + n - n0] + static_cast<float>(task.w.mlp2_bias(e, n));
                    }
                  });
}

}  // namespace int8

void experts_int8(const ExpertsTask& task, View<std::byte, 1> memory) {
  ScratchAllocator allocator(memory);
  const ExpertsInt8Scratch s(task.tokens(), task.top_k(), task.num_experts(), task.hidden(),
                             task.intermediate(), task.threads.threads(), allocator);
  const int64_t active = group_by_expert(task, s.sorted);
  int8::up_projection(task, s, active);
  int8::down_projection(task, s, active);
  combine(int8::FloatTag(), task, s.out);
}

#else

void experts_int8(const ExpertsTask& task, View<std::byte, 1>) {
  experts_int8_reference(task.x, task.experts, task.weights, task.w, task.y, {});
}

#endif

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::kernels {

HWY_EXPORT(experts_int8);

void experts_int8_cpu(View<const float, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                      const ExpertWeights& w, View<float, 2> y, const Execution& on) {
  const ExpertsTask task{x, experts, weights, w, y, *on.threads};
  expect_experts(task);
  FATHOM_EXPECT(
      std::holds_alternative<Mxfp4Matrices>(w.mlp1) && std::holds_alternative<Mxfp4Matrices>(w.mlp2),
      "activations in int8 go with weights in MXFP4");
  if (task.tokens() == 0) return;
  HWY_DYNAMIC_DISPATCH(experts_int8)(task, on.scratch);
}

int64_t experts_int8_cpu_scratch_bytes(int64_t rows, int64_t top_k, int64_t num_experts, int64_t hidden,
                                       int64_t intermediate, int threads) {
  ScratchAllocator counter;
  ExpertsInt8Scratch(rows, top_k, num_experts, hidden, intermediate, threads, counter);
  return counter.used();
}

}  // namespace fathom::kernels
#endif
