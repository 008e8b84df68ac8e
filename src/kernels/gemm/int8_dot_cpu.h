// Products of rows in int8 with the outputs of a matrix, for linear_int8_cpu and experts_int8_cpu. The lower
// half is included once for each instruction set (hwy/foreach_target.h), hence the unusual guard.
//
// A block of 32 numbers has one scale on either side, so its products are summed in integers. 32-bit lanes
// are blocks: words of neighbouring blocks are transposed before they are used, hence no sum across lanes
// until the end of a row, and one multiplication by each side's scale for a whole vector of blocks.
//
// x86's products of bytes take an unsigned factor and a signed one. Weights become unsigned by an offset, and
// what it adds, the offset times the sum of a block's activations, is known when these are quantized, and
// subtracted where the sum begins.
//
// Up to 8 rows share weights in registers. For more, panels of 24 outputs are unpacked once and stay in L2.
// Sums of a block are exact and blocks are added in one order, so that a row's bits depend neither on other
// rows nor on the instruction set.
#ifndef FATHOM_KERNELS_INT8_DOT_CPU
#define FATHOM_KERNELS_INT8_DOT_CPU

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/int8_group.h"
#include "kernels/gemm/gemm_scratch_cpu.h"

namespace fathom::kernels {

// Blocks of a row are padded to a multiple of this, the 32-bit lanes of a vector.
inline constexpr int64_t kBlockPadding = 8;
// A block of a row: 32 values, 4 bytes of offsets, a scale.
inline constexpr int64_t kRowBlockBytes = kInt8Group + 4 + 4;
// A block of a panel's weights: 32 values, a scale.
inline constexpr int64_t kPanelBlockBytes = kInt8Group + 4;

constexpr int64_t padded_blocks(int64_t depth) { return round_up(int8_groups(depth), kBlockPadding); }
constexpr int64_t int8_row_bytes(int64_t depth) { return padded_blocks(depth) * kRowBlockBytes; }

struct Int8TileScratch {
  uint8_t* panel;  // kPanel outputs, unpacked
  float* sums;     // [kRowBlock, kPanel]

  Int8TileScratch(int64_t depth, ScratchAllocator& allocator)
      : panel(allocator.take<uint8_t>(kPanel * padded_blocks(depth) * kPanelBlockBytes)),
        sums(allocator.take<float>(kSums)) {}
};

// An Int8TileScratch for each thread.
class Int8TileScratches {
 public:
  Int8TileScratches(int64_t depth, int threads, ScratchAllocator& allocator) : depth_(depth) {
    ScratchAllocator counter;
    Int8TileScratch(depth, counter);
    bytes_  = counter.used();
    memory_ = allocator.take<std::byte>(threads * bytes_);
  }

  Int8TileScratch of(int worker) const {
    ScratchAllocator allocator({memory_ + worker * bytes_, {bytes_}});
    return Int8TileScratch(depth_, allocator);
  }

 private:
  int64_t depth_, bytes_;
  std::byte* memory_;
};

}  // namespace fathom::kernels
#endif  // FATHOM_KERNELS_INT8_DOT_CPU

#if defined(FATHOM_KERNELS_INT8_DOT_CPU_TARGET) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_KERNELS_INT8_DOT_CPU_TARGET
#undef FATHOM_KERNELS_INT8_DOT_CPU_TARGET
#else
#define FATHOM_KERNELS_INT8_DOT_CPU_TARGET
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"

// Other instruction sets use the reference implementations. HWY_AVX3 means AVX-512 with VNNI here: whoever
// dispatches to it asks has_vnni() first, and takes HWY_AVX2's code where it is missing.
#define FATHOM_KERNELS_HAVE_INT8_DOT (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
#if FATHOM_KERNELS_HAVE_INT8_DOT

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE::int8 {

namespace hn = hwy::HWY_NAMESPACE;

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
// A step is a vector of blocks, a block to each 32-bit lane.
inline constexpr int64_t kBlocks  = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
inline constexpr int64_t kBytes   = 4 * kBlocks;  // of a vector
inline constexpr int64_t kVectors = kInt8Group / 4;

// ---- products of bytes ----

// Four at a time into 32 bits, by VNNI. Highway's target with VNNI would also let g++ use AVX-VNNI, which Zen
// 4 lacks.
struct VnniProducts {
  using Sum = Ints;
  static HWY_INLINE Sum begin(const uint8_t* offsets) {
    return hn::Load(IntTag(), reinterpret_cast<const int32_t*>(offsets));
  }
  static HWY_INLINE Sum add(Sum sum, Bytes weights, Bytes values) {
    asm("%{evex%} vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(weights.raw), "v"(values.raw));
    return sum;
  }
  static HWY_INLINE Ints total(Sum sum) { return sum; }
  static int32_t offsets(__m128i sums, int offset) {
    return -offset * _mm_cvtsi128_si32(_mm_madd_epi16(sums, _mm_set1_epi16(1)));
  }
};

// Two at a time into 16 bits: for weights of at most 24, whose two products do not saturate. Sums of sixteen
// may wrap, but what is left without the offset, at most 16 x 12 x 127, fits again.
struct ShortProducts {
  using Sum = Shorts;
  static HWY_INLINE Sum begin(const uint8_t* offsets) {
    return hn::Load(ShortTag(), reinterpret_cast<const int16_t*>(offsets));
  }
  // The empty statement keeps sums in this order: else g++ takes all products first, has no registers for
  // them, and stores them.
  static HWY_INLINE Sum add(Sum sum, Bytes weights, Bytes values) {
    sum = hn::Add(sum, Shorts{_mm256_maddubs_epi16(weights.raw, values.raw)});
    asm("" : "+v"(sum.raw));
    return sum;
  }
  static HWY_INLINE Ints total(Sum sum) { return Ints{_mm256_madd_epi16(sum.raw, _mm256_set1_epi16(1))}; }
  static int32_t offsets(__m128i sums, int offset) {
    return _mm_cvtsi128_si32(_mm_mullo_epi16(sums, _mm_set1_epi16(static_cast<int16_t>(-offset))));
  }
};

// By VNNI, with the rows of ShortProducts.
struct VnniShortProducts : VnniProducts {
  static HWY_INLINE Sum begin(const uint8_t* offsets) {
    return ShortProducts::total(ShortProducts::begin(offsets));
  }
};

// Two at a time, of signed weights: their magnitudes with values that have the product's sign. 2 x 128 x 127
// do not saturate, but no further product fits into 16 bits.
struct SignedProducts {
  using Sum = Ints;
  static HWY_INLINE Sum begin(const uint8_t*) { return hn::Zero(IntTag()); }
  static HWY_INLINE Sum add(Sum sum, Bytes weights, Bytes values) {
    const __m256i pairs =
        _mm256_maddubs_epi16(_mm256_abs_epi8(weights.raw), _mm256_sign_epi8(values.raw, weights.raw));
    sum = hn::Add(sum, Ints{_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))});
    asm("" : "+v"(sum.raw));
    return sum;
  }
  static HWY_INLINE Ints total(Sum sum) { return sum; }
  static int32_t offsets(__m128i, int) { return 0; }
};

// ---- rows ----

// A quantized row, by step: kVectors vectors of values; one of offsets, what a block's sum begins with; one
// of scales. The block's 4-byte words and its lane are where `Weights` has them:
//
//   Products            of bytes, for few rows
//   TileProducts        for many; offsets are those of Products
//   kOffset             added to weights
//   kUnit               a weight is this much of its scale
//   kOrder              the order of a block's numbers, as bytes of the words of vectors 0 to 3; of vectors
//                       4 to 7 the same, relative to number 16
//   lane_of(block)      of a step
//   load(output, block, raw)       the step at `block`: loads kRaw vectors, returns scales
//   load_last(output, block, raw)  the last step, which is not full
//   for_each(raw, f)    calls f(vector, weights) for each vector of a step
//   prefetch(output, block)        what load will read
//   address(output)     of its first block
//   count               of an output's blocks
inline constexpr int64_t kRowStep = (kVectors + 2) * kBytes;

// `values` are aligned.
template <class Weights>
HWY_INLINE void store_block(const int8_t* values, float scale, int64_t lane, uint8_t* step) {
  const hn::CappedTag<int8_t, 16> d8;
  const auto order  = hn::LoadU(d8, Weights::kOrder);
  const auto first  = hn::TableLookupBytes(hn::Load(d8, values), order),
             second = hn::TableLookupBytes(hn::Load(d8, values + 16), order);
  alignas(16) int8_t words[kInt8Group];
  hn::Store(first, d8, words);
  hn::Store(second, d8, words + 16);
  for (int64_t i = 0; i < kVectors; ++i) std::memcpy(step + i * kBytes + lane * 4, words + 4 * i, 4);

  // Sums of neighbours, then of the words: the first halves' in 16-bit lane 0, the second ones' in lane 1.
  const __m128i ones = _mm_set1_epi8(1);
  __m128i sums       = _mm_add_epi16(_mm_maddubs_epi16(ones, first.raw), _mm_maddubs_epi16(ones, second.raw));
  sums               = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0x4e));
  sums               = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0xb1));
  const int32_t offsets = Weights::Products::offsets(sums, Weights::kOffset);
  std::memcpy(step + kVectors * kBytes + lane * 4, &offsets, sizeof offsets);
  std::memcpy(step + (kVectors + 1) * kBytes + lane * 4, &scale, sizeof scale);
}

template <class Weights>
HWY_NOINLINE void quantize_row(const float* x, int64_t depth, uint8_t* row) {
  const hn::CappedTag<float, 8> d;
  constexpr int64_t kLanes = 8;
  const hn::Rebind<int32_t, decltype(d)> ints;
  const hn::Rebind<int8_t, decltype(d)> narrow;
  const int64_t blocks             = int8_groups(depth);
  HWY_ALIGN float last[kInt8Group] = {};  // a block that is not full
  for (int64_t b = 0; b < round_up(blocks, kBlocks); ++b, x += kInt8Group) {
    HWY_ALIGN int8_t values[kInt8Group] = {};
    float scale                         = 0;
    if (b < blocks) {
      const float* from = x;
      if (const int64_t left = depth - b * kInt8Group; left < kInt8Group)
        from = last, std::copy_n(x, left, last);
      auto largest = hn::Zero(d);
      bool finite  = true;
      for (int64_t i = 0; i < kInt8Group; i += kLanes) {
        const auto v = hn::LoadU(d, from + i);
        finite       = finite && hn::AllTrue(d, hn::IsFinite(v));
        largest      = hn::Max(largest, hn::Abs(v));
      }
      scale =
          finite ? hn::GetLane(hn::MaxOfLanes(d, largest)) / 127 : std::numeric_limits<float>::quiet_NaN();
      if (scale > 0)
        for (int64_t i = 0; i < kInt8Group; i += kLanes) {
          const auto v = hn::Div(hn::LoadU(d, from + i), hn::Set(d, scale));
          const auto c = hn::Clamp(hn::NearestInt(v), hn::Set(ints, -127), hn::Set(ints, 127));
          hn::Store(hn::DemoteTo(narrow, c), narrow, values + i);
        }
    }
    store_block<Weights>(values, scale, Weights::lane_of(b % kBlocks), row + b / kBlocks * kRowStep);
  }
}

// ---- weights ----

// Words i of four vectors' halves of 128 bits.
HWY_INLINE void transpose(const Bytes& v0, const Bytes& v1, const Bytes& v2, const Bytes& v3, Bytes* words) {
  const ByteTag bytes;
  const WordTag d32;
  const hn::Repartition<uint64_t, FloatTag> d64;
  const auto p0 = hn::BitCast(d32, v0), p1 = hn::BitCast(d32, v1), p2 = hn::BitCast(d32, v2),
             p3     = hn::BitCast(d32, v3);
  const auto low01  = hn::BitCast(d64, hn::InterleaveLower(d32, p0, p1)),
             low23  = hn::BitCast(d64, hn::InterleaveLower(d32, p2, p3)),
             high01 = hn::BitCast(d64, hn::InterleaveUpper(d32, p0, p1)),
             high23 = hn::BitCast(d64, hn::InterleaveUpper(d32, p2, p3));
  words[0]          = hn::BitCast(bytes, hn::InterleaveLower(d64, low01, low23));
  words[1]          = hn::BitCast(bytes, hn::InterleaveUpper(d64, low01, low23));
  words[2]          = hn::BitCast(bytes, hn::InterleaveLower(d64, high01, high23));
  words[3]          = hn::BitCast(bytes, hn::InterleaveUpper(d64, high01, high23));
}

// ---- sums ----

HWY_INLINE Bytes row_values(const uint8_t* step, int64_t vector) {
  return hn::Load(ByteTag(), step + vector * kBytes);
}
// Scales first: their product is far from both ends of fp32, where the product of one of them with a sum need
// not be.
HWY_INLINE Floats add_scaled(Floats to, Ints sum, const uint8_t* step, Floats scale) {
  const FloatTag d;
  const Floats of_row = hn::Load(d, reinterpret_cast<const float*>(step + (kVectors + 1) * kBytes));
  return hn::MulAdd(hn::ConvertTo(d, sum), hn::Mul(of_row, scale), to);
}
template <class Weights>
HWY_INLINE float total(Floats sums) {
  return Weights::kUnit * hn::GetLane(hn::SumOfLanes(FloatTag(), sums));
}

// Up to this many rows read weights from memory directly into registers.
inline constexpr int64_t kMaxGemvRows = 8;

// Sums for outputs [begin, end): sums(r, n) = sums[r * kPanel + n - begin].
template <int64_t kRows, class Weights>
HWY_NOINLINE void gemv_rows(const Weights& w, const uint8_t* const* rows, int64_t begin, int64_t end,
                            float* HWY_RESTRICT sums) {
  using Products      = typename Weights::Products;
  const int64_t whole = w.whole_steps() * kBlocks;
  for (int64_t n = begin; n < end; ++n) {
    Floats of_row[kRows];
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) of_row[r] = hn::Zero(FloatTag());
    const auto step = [&](int64_t block, const Bytes* raw, Floats scale) HWY_ATTR
        __attribute__((always_inline)) {
      const int64_t at = block / kBlocks * kRowStep;
      typename Products::Sum sum[kRows];
#pragma GCC unroll 8
      for (int64_t r = 0; r < kRows; ++r) sum[r] = Products::begin(rows[r] + at + kVectors * kBytes);
      Weights::for_each(
          raw, [&](int64_t v, Bytes weights) HWY_ATTR __attribute__((always_inline)) {
#pragma GCC unroll 8
            for (int64_t r = 0; r < kRows; ++r)
              sum[r] = Products::add(sum[r], weights, row_values(rows[r] + at, v));
          });
#pragma GCC unroll 8
      for (int64_t r = 0; r < kRows; ++r)
        of_row[r] = add_scaled(of_row[r], Products::total(sum[r]), rows[r] + at, scale);
    };
    Bytes raw[Weights::kRaw];
    for (int64_t block = 0; block < whole; block += kBlocks) {
      w.prefetch(n, block);
      const Floats scale = w.load(n, block, raw);
      step(block, raw, scale);
    }
    if (whole < w.count) {
      const Floats scale = w.load_last(n, whole, raw);
      step(whole, raw, scale);
    }
    for (int64_t r = 0; r < kRows; ++r) sums[r * kPanel + n - begin] = total<Weights>(of_row[r]);
  }
}

// An unpacked output, by step: kVectors vectors of numbers, one of scales.
inline constexpr int64_t kPanelStep = (kVectors + 1) * kBytes;

template <class Weights>
HWY_NOINLINE void unpack_panel(const Weights& w, int64_t begin, int64_t end, uint8_t* panel) {
  const int64_t whole = w.whole_steps() * kBlocks;
  for (int64_t n = begin; n < end; ++n)
    for (int64_t block = 0; block < w.count; block += kBlocks, panel += kPanelStep) {
      Bytes raw[Weights::kRaw];
      const Floats scale = block < whole ? w.load(n, block, raw) : w.load_last(n, block, raw);
      Weights::for_each(
          raw, [&](int64_t v, Bytes weights) HWY_ATTR
          __attribute__((always_inline)) { hn::Store(weights, ByteTag(), panel + v * kBytes); });
      hn::Store(scale, FloatTag(), reinterpret_cast<float*>(panel + kVectors * kBytes));
    }
}

// Four rows of 2880 numbers, 15 KB, stay in L1 while the outputs of a panel pass by. Larger tiles are slower.
inline constexpr int64_t kTileRows = 4, kTileOutputs = 2;
static_assert(kPanel % kTileOutputs == 0);

// Sums of kRows rows with kTileOutputs outputs of a panel: sums(r, c) = sums[r * kPanel + c].
template <int64_t kRows, class Weights>
HWY_NOINLINE void gemm_tile(const uint8_t* panel, int64_t steps, const uint8_t* const* rows,
                            float* HWY_RESTRICT sums) {
  using Products = typename Weights::TileProducts;
  const ByteTag bytes;
  constexpr int64_t kTile = kRows * kTileOutputs;
  Floats of_tile[kTile];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTile; ++i) of_tile[i] = hn::Zero(FloatTag());
  for (int64_t s = 0; s < steps; ++s) {
    const uint8_t* weights = panel + s * kPanelStep;
    const int64_t at       = s * kRowStep;
    typename Products::Sum sum[kTile];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTile; ++i)
      sum[i] = Products::begin(rows[i / kTileOutputs] + at + kVectors * kBytes);
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
          sum[r * kTileOutputs + c] = Products::add(sum[r * kTileOutputs + c], w[c], values);
      }
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTile; ++i) {
      const uint8_t* scales = weights + i % kTileOutputs * steps * kPanelStep + kVectors * kBytes;
      of_tile[i]            = add_scaled(of_tile[i], Products::total(sum[i]), rows[i / kTileOutputs] + at,
                                         hn::Load(FloatTag(), reinterpret_cast<const float*>(scales)));
    }
  }
  for (int64_t i = 0; i < kTile; ++i)
    sums[i / kTileOutputs * kPanel + i % kTileOutputs] = total<Weights>(of_tile[i]);
}

// The products of `count` quantized rows with outputs [begin, end), panel by panel. For each panel and block
// of rows calls take(first row, rows, first output, end output, sums), with sums(r, n) = sums[r * kPanel + n
// - first output].
template <class Weights, class Take>
void dot_products(const Weights& w, const uint8_t* const* rows, int64_t count, int64_t begin, int64_t end,
                  const Int8TileScratch& scratch, const Take& take) {
  static constexpr decltype(&gemv_rows<1, Weights>) kGemvRows[kMaxGemvRows] = {
      gemv_rows<1, Weights>, gemv_rows<2, Weights>, gemv_rows<3, Weights>, gemv_rows<4, Weights>,
      gemv_rows<5, Weights>, gemv_rows<6, Weights>, gemv_rows<7, Weights>, gemv_rows<8, Weights>};
  static constexpr decltype(&gemm_tile<1, Weights>) kTiles[kTileRows] = {
      gemm_tile<1, Weights>, gemm_tile<2, Weights>, gemm_tile<3, Weights>, gemm_tile<4, Weights>};
  const int64_t steps = round_up(w.count, kBlocks) / kBlocks;
  for (int64_t n0 = begin; n0 < end; n0 += kPanel) {
    const int64_t n1 = std::min(n0 + kPanel, end);
    if (count <= kMaxGemvRows) {
      kGemvRows[count - 1](w, rows, n0, n1, scratch.sums);
      take(0, count, n0, n1, scratch.sums);
      continue;
    }
    unpack_panel(w, n0, n1, scratch.panel);
    // Tiles of the first rows prefetch the next panel from memory to L2.
    const char *ahead = w.address(n1), *ahead_end = w.address(std::min(n1 + kPanel, end));
    const int64_t tiles =
        round_up(std::min(count, kRowBlock), kTileRows) / kTileRows * (kPanel / kTileOutputs);
    const int64_t share = round_up((ahead_end - ahead + tiles - 1) / tiles, 64);
    for (int64_t first = 0; first < count; first += kRowBlock) {
      const int64_t here = std::min(count - first, kRowBlock);
      for (int64_t r = 0; r < here; r += kTileRows)
        for (int64_t c = 0; c < n1 - n0; c += kTileOutputs) {
          for (const char* until = std::min(ahead + share, ahead_end); ahead < until; ahead += 64)
            __builtin_prefetch(ahead, 0, 2);
          kTiles[std::min(here - r, kTileRows) - 1](scratch.panel + c * steps * kPanelStep, steps,
                                                    rows + first + r, scratch.sums + r * kPanel + c);
        }
      take(first, here, n0, n1, scratch.sums);
    }
  }
}

inline bool has_vnni() { return __builtin_cpu_supports("avx512vnni"); }

}  // namespace fathom::kernels::HWY_NAMESPACE::int8
HWY_AFTER_NAMESPACE();
#endif  // FATHOM_KERNELS_HAVE_INT8_DOT
#endif  // FATHOM_KERNELS_INT8_DOT_CPU_TARGET
