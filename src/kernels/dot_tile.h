// Dot products of rows with the outputs of a weight matrix, for one instruction set: the inside of linear_cpu
// and experts_cpu. Included once for each (hwy/foreach_target.h), hence the unusual guard.
//
// A (row, output) has one vector of sums, which runs over the weights in one order and is folded by one tree,
// whichever other rows and outputs share its tile and wherever its weights were converted: its bits depend on
// that row and that output alone.
#if defined(FATHOM_KERNELS_DOT_TILE) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_KERNELS_DOT_TILE
#undef FATHOM_KERNELS_DOT_TILE
#else
#define FATHOM_KERNELS_DOT_TILE
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "core/fp4_blocks.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/dot_scratch.h"

// Elsewhere the references do.
#define FATHOM_KERNELS_HAVE_TILE (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
#if FATHOM_KERNELS_HAVE_TILE

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes  = hn::CappedTag<float, 16>;
using Bits   = hn::RebindToUnsigned<Lanes>;
using Floats = hn::Vec<Lanes>;

inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Lanes()));

// A matrix is read in steps of kVectors vectors of weights: `expand` makes them from what lies at a place of
// an output's row, and lane l of vector v is element(v, l) of the step, which is not the order of memory.
// A last step that is not whole is read from a copy with zeros behind it.

struct Bf16Matrix {
  static constexpr int64_t kVectors = 2;
  static constexpr int64_t kStep    = kVectors * kLanes;
  const bf16* weights;
  int64_t depth;
  int64_t stride;  // from one output's weights to the next's

  static constexpr int64_t element(int64_t vector, int64_t lane) { return 2 * lane + vector; }

  // The matrix from that output on.
  void repeat() { stride = 0; }  // all outputs are the first
  HWY_INLINE Bf16Matrix from(int64_t output) const { return {weights + output * stride, depth, stride}; }

  // The weights of an output from k on, a multiple of kStep.
  HWY_INLINE void expand(int64_t output, int64_t k, Floats* w) const {
    const Lanes d;
    const Bits bits;
    const auto pairs = hn::LoadU(bits, reinterpret_cast<const uint32_t*>(weights + output * stride + k));
    w[0]             = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    w[1]             = hn::BitCast(d, hn::And(pairs, hn::Set(bits, 0xffff0000u)));
  }

  void expand_last(int64_t output, int64_t k, Floats* w) const {
    HWY_ALIGN bf16 last[kStep] = {};
    std::copy_n(weights + output * stride + k, depth - k, last);
    Bf16Matrix{last, kStep, 0}.expand(0, 0, w);
  }

  const char* address(int64_t output) const {
    return reinterpret_cast<const char*>(weights + output * stride);
  }

  HWY_INLINE void prefetch(int64_t output, int64_t k) const { hwy::Prefetch(weights + output * stride + k); }
};

struct Mxfp4Matrix {
  static constexpr int64_t kVectors = 8;
  static constexpr int64_t kStep    = kVectors * kLanes;
  const uint8_t* values;
  const uint8_t* scales;
  int64_t depth;
  int64_t values_stride, scales_stride;  // from one output's to the next's

#if HWY_TARGET == HWY_AVX2
  // 16 bytes of a vector bytes is one block; see expand.
  static constexpr int64_t element(int64_t vector, int64_t lane) {
    const int64_t high = vector / 4, upper = vector / 2 % 2, odd = vector % 2;
    return lane / 4 * kMxfp4Block + 2 * (8 * upper + 2 * (lane % 4) + odd) + high;
  }
#else
  // A lane is eight nibbles.
  static constexpr int64_t element(int64_t vector, int64_t lane) { return 8 * lane + vector; }
#endif

  void repeat() { values_stride = scales_stride = 0; }
  HWY_INLINE Mxfp4Matrix from(int64_t output) const {
    return {values + output * values_stride, scales + output * scales_stride, depth, values_stride,
            scales_stride};
  }

  // For each lane the scale of its block, from the bytes of a step's scales. A byte becomes the exponent of a
  // float, 0 the subnormal 2^-127.
  static HWY_INLINE Floats expand_scales(uint32_t word) {
    const Lanes d;
    const Bits bits;
    const hn::Repartition<uint8_t, Lanes> bytes;
    HWY_ALIGN static constexpr uint8_t kToTop[64] = {
        128, 128, 128, 0, 128, 128, 128, 0, 128, 128, 128, 0, 128, 128, 128, 0,   //
        128, 128, 128, 1, 128, 128, 128, 1, 128, 128, 128, 1, 128, 128, 128, 1,   //
        128, 128, 128, 2, 128, 128, 128, 2, 128, 128, 128, 2, 128, 128, 128, 2,   //
        128, 128, 128, 3, 128, 128, 128, 3, 128, 128, 128, 3, 128, 128, 128, 3};  //
    const auto top =
        hn::TableLookupBytesOr0(hn::BitCast(bytes, hn::Set(bits, word)), hn::Load(bytes, kToTop));
    const auto exponent = hn::ShiftRight<1>(hn::BitCast(bits, top));
    return hn::BitCast(d, hn::Max(exponent, hn::Set(bits, 0x00400000u)));
  }

  HWY_INLINE void expand(int64_t output, int64_t k, Floats* w) const {
    const auto* words = reinterpret_cast<const uint32_t*>(values + output * values_stride + k / 2);
    uint32_t scale    = 0;
    std::memcpy(&scale, scales + output * scales_stride + k / kMxfp4Block, kStep / kMxfp4Block);
    look_up(hn::LoadU(Bits(), words), expand_scales(scale), w);
  }

  HWY_INLINE void expand_last(int64_t output, int64_t k, Floats* w) const {
    const Bits bits;
    const auto* words   = reinterpret_cast<const uint32_t*>(values + output * values_stride + k / 2);
    const int64_t first = k / kMxfp4Block, count = depth / kMxfp4Block - first;
    const uint8_t* last = scales + output * scales_stride + first;
    uint32_t scale      = 0x7f7f7f7f;  // 1 where nothing is: the least scale is slow to multiply with
    for (int64_t b = count; b-- > 0;) scale = scale << 8 | last[b];
    look_up(hn::MaskedLoad(hn::FirstN(bits, static_cast<size_t>(depth - k) / 8), bits, words),
            expand_scales(scale), w);
  }

#if HWY_TARGET == HWY_AVX3
  static HWY_INLINE void look_up(hn::Vec<Bits> nibbles, Floats scale, Floats* w) {
    const Lanes d;
    HWY_ALIGN static constexpr float kValues[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                    -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const auto table                             = hn::Load(d, kValues);
    // The permutation looks at the low four bits of an index.
    const auto value = [&](auto index) HWY_ATTR {
      return hn::Mul(hn::TableLookupLanes(table, hn::Indices512<float>{index.raw}), scale);
    };
    w[0] = value(nibbles);
    w[1] = value(hn::ShiftRight<4>(nibbles));
    w[2] = value(hn::ShiftRight<8>(nibbles));
    w[3] = value(hn::ShiftRight<12>(nibbles));
    w[4] = value(hn::ShiftRight<16>(nibbles));
    w[5] = value(hn::ShiftRight<20>(nibbles));
    w[6] = value(hn::ShiftRight<24>(nibbles));
    w[7] = value(hn::ShiftRight<28>(nibbles));
  }
#else
  // Two look-ups give the two bytes of each value in bf16, and a bf16 is the upper half of a float.
  static HWY_INLINE void look_up(hn::Vec<Bits> nibbles, Floats scale, Floats* w) {
    const Lanes d;
    const Bits bits;
    const hn::Repartition<uint8_t, Lanes> bytes;
    const hn::Repartition<uint16_t, Lanes> words;
    HWY_ALIGN static constexpr uint8_t kUpper[16] = {0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                                     0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
    HWY_ALIGN static constexpr uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0,
                                                     0x00, 0x00, 0x80, 0xc0, 0x00, 0x40, 0x80, 0xc0};
    const auto upper                              = hn::LoadDup128(bytes, kUpper);
    const auto lower                              = hn::LoadDup128(bytes, kLower);
    const auto nibble                             = hn::Set(bytes, 15);
    const auto both                               = hn::BitCast(bytes, nibbles);
    const auto pair                               = [&](auto halves, Floats* to) HWY_ATTR {
      const auto two = hn::BitCast(bits, halves);
      to[0]          = hn::Mul(hn::BitCast(d, hn::ShiftLeft<16>(two)), scale);
      to[1]          = hn::Mul(hn::BitCast(d, hn::And(two, hn::Set(bits, 0xffff0000u))), scale);
    };
    const auto four = [&](auto codes, Floats* to) HWY_ATTR {
      const auto u = hn::TableLookupBytes(upper, codes), l = hn::TableLookupBytes(lower, codes);
      pair(hn::InterleaveLower(bytes, l, u), to);
      pair(hn::InterleaveUpper(bytes, l, u), to + 2);
    };
    four(hn::And(both, nibble), w);
    four(hn::And(hn::BitCast(bytes, hn::ShiftRight<4>(hn::BitCast(words, both))), nibble), w + 4);
  }
#endif

  const char* address(int64_t output) const {
    return reinterpret_cast<const char*>(values + output * values_stride);
  }

  HWY_INLINE void prefetch(int64_t output, int64_t k) const {
    hwy::Prefetch(values + output * values_stride + k / 2);
  }
};

// The sums of the lanes of kLanes vectors, one a lane.
HWY_INLINE Floats fold(Floats* v) {
  const Lanes d;
#pragma GCC unroll 4
  for (int64_t n = kLanes / 2; n > 0; n /= 2)
#pragma GCC unroll 8
    for (int64_t i = 0; i < n; ++i)
      v[i] = hn::Add(hn::ConcatEven(d, v[2 * i + 1], v[2 * i]), hn::ConcatOdd(d, v[2 * i + 1], v[2 * i]));
  return v[0];
}

// A row in the order of the matrix's weights, zeros behind it: round_up(depth, kStep) floats.
template <class Matrix>
void prepare_row(const float* row, int64_t depth, float* prepared) {
  constexpr int64_t kStep = Matrix::kStep;
  int64_t k               = 0;
  for (; k + kStep <= depth; k += kStep)
    for (int64_t v = 0; v < Matrix::kVectors; ++v)
      for (int64_t l = 0; l < kLanes; ++l) prepared[k + v * kLanes + l] = row[k + Matrix::element(v, l)];
  if (k == depth) return;
  for (int64_t v = 0; v < Matrix::kVectors; ++v)
    for (int64_t l = 0; l < kLanes; ++l) {
      const int64_t i              = k + Matrix::element(v, l);
      prepared[k + v * kLanes + l] = i < depth ? row[i] : 0.0f;
    }
}

// Columns [begin, end) of kRows rows times the first kOutputs outputs, added to their vectors of sums, r
// kOutputs
// + c. fetch(c, k) is called beside the work on each output's step.
template <int64_t kRows, int64_t kOutputs, class Matrix, class Fetch>
HWY_INLINE void tile(const Matrix& matrix, const float* const* rows, int64_t begin, int64_t end, Floats* sums,
                     const Fetch& fetch) {
  const Lanes d;
  const auto step = [&](int64_t k, auto last) HWY_ATTR {
#pragma GCC unroll 8
    for (int64_t c = 0; c < kOutputs; ++c) {
      Floats w[Matrix::kVectors];
      last ? matrix.expand_last(c, k, w) : matrix.expand(c, k, w);
      fetch(c, k);
#pragma GCC unroll 8
      for (int64_t v = 0; v < Matrix::kVectors; ++v)
#pragma GCC unroll 4
        for (int64_t r = 0; r < kRows; ++r)
          sums[r * kOutputs + c] =
              hn::MulAdd(hn::Load(d, rows[r] + k + v * kLanes), w[v], sums[r * kOutputs + c]);
    }
  };
  const int64_t whole = std::min(end, matrix.depth / Matrix::kStep * Matrix::kStep);
  for (int64_t k = begin; k < whole; k += Matrix::kStep) step(k, std::false_type());
  if (whole < end) step(whole, std::true_type());
}

// A few rows: weights go from memory to registers, and their values to up to four rows there.
inline constexpr int64_t kFewRows = 16;

// Outputs [begin, end) of the matrix: sums(r, n) = sums[r * kPanel + n - begin].
template <int64_t kRows, class Matrix>
HWY_NOINLINE void few_rows(const Matrix& matrix, const float* const* rows, int64_t begin, int64_t end,
                           float* HWY_RESTRICT sums) {
  // Chains enough to cover the latency of an FMA; more share the rows, which hardly fit into L1, where there
  // are registers for them.
  constexpr int64_t kSums    = HWY_TARGET == HWY_AVX3 ? 16 : 8;
  constexpr int64_t kOutputs = std::min<int64_t>((kSums + kRows - 1) / kRows, 8);
  constexpr int64_t kFolded  = round_up(kRows * kOutputs, kLanes);
  const Lanes d;
  for (int64_t n = begin; n < end;) {
    Matrix at           = matrix.from(n);
    const int64_t count = end - n < kOutputs ? 1 : kOutputs;
    if (count == 1) at.repeat();
    Floats sum[kFolded];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kFolded; ++i) sum[i] = hn::Zero(d);
    tile<kRows, kOutputs>(at, rows, 0, at.depth, sum, [&](int64_t c, int64_t k) { at.prefetch(c + 8, k); });
    HWY_ALIGN float folded[kFolded];
    for (int64_t i = 0; i < kFolded; i += kLanes) hn::Store(fold(sum + i), d, folded + i);
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < count; ++c) sums[r * kPanel + n - begin + c] = folded[r * kOutputs + c];
    n += count;
  }
}

// Many rows pass over a panel of outputs in bf16, kTileRows at a time, and over a piece of the columns after
// the other, so that what a tile reads stays in L1.
inline constexpr int64_t kTileRows    = 4;
inline constexpr int64_t kTileOutputs = HWY_TARGET == HWY_AVX3 ? 6 : 3;  // of 32 and 16 registers
inline constexpr int64_t kTileDepth   = 1024;

// What tiles fetch of the next panel's weights meanwhile, from memory to L2: as fast as a few rows take it.
inline constexpr int64_t kAheadBytes = 4;  // for each column
struct Ahead {
  const char* at;
  const char* end;

  // The next bytes to fetch; where none are left, some that are near anyway.
  const char* take(int64_t bytes, const float* near) {
    if (at >= end) return reinterpret_cast<const char*>(near);
    at += bytes;
    return at - bytes;
  }
};

template <int64_t kRows>
HWY_NOINLINE void tile_of_many(const Bf16Matrix& matrix, const float* const* rows, int64_t begin, int64_t end,
                               const char* ahead, float* HWY_RESTRICT partials) {
  const Lanes d;
  constexpr int64_t kSums = kRows * kTileOutputs;
  Floats sum[kSums];
#pragma GCC unroll 24
  for (int64_t i = 0; i < kSums; ++i) sum[i] = begin == 0 ? hn::Zero(d) : hn::Load(d, partials + i * kLanes);
  tile<kRows, kTileOutputs>(matrix, rows, begin, end, sum, [&](int64_t c, int64_t k) {
    const int64_t line = c * 64;
    if (line < Bf16Matrix::kStep * kAheadBytes)
      __builtin_prefetch(ahead + (k - begin) * kAheadBytes + line, 0, 2);
  });
#pragma GCC unroll 24
  for (int64_t i = 0; i < kSums; ++i) hn::Store(sum[i], d, partials + i * kLanes);
}

// sums(r, n) = sums[r * kPanel + n] of `count` <= kRowBlock rows and the first `outputs`.
inline void many_rows(const Bf16Matrix& matrix, const float* const* rows, int64_t count, int64_t outputs,
                      Ahead& ahead, float* HWY_RESTRICT partials, float* HWY_RESTRICT sums) {
  static constexpr decltype(&tile_of_many<1>) kTiles[] = {tile_of_many<1>, tile_of_many<2>, tile_of_many<3>,
                                                          tile_of_many<4>};
  const Lanes d;
  for (int64_t n = 0; n < outputs;) {
    Bf16Matrix at      = matrix.from(n);
    const int64_t some = outputs - n < kTileOutputs ? 1 : kTileOutputs;
    if (some == 1) at.repeat();
    int64_t k = 0;
    do {  // once where there is nothing to add
      const int64_t end = std::min(k + kTileDepth, at.depth);
      for (int64_t r = 0; r < count; r += kTileRows)
        kTiles[std::min(count - r, kTileRows) - 1](at, rows + r, k, end,
                                                   ahead.take((end - k) * kAheadBytes, *rows),
                                                   partials + r * kTileOutputs * kLanes);
      k = end;
    } while (k < at.depth);
    for (int64_t i = 0; i < count * kTileOutputs; i += kLanes) {
      Floats v[kLanes];
#pragma GCC unroll 16
      for (int64_t j = 0; j < kLanes; ++j) v[j] = hn::Load(d, partials + (i + j) * kLanes);
      HWY_ALIGN float folded[kLanes];
      hn::Store(fold(v), d, folded);
      for (int64_t j = i; j < std::min(i + kLanes, count * kTileOutputs); ++j)
        if (j % kTileOutputs < some) sums[j / kTileOutputs * kPanel + n + j % kTileOutputs] = folded[j - i];
    }
    n += some;
  }
}

// Outputs [begin, end) in bf16, which holds them exactly, as a matrix whose order is that of `matrix`.
HWY_NOINLINE inline Bf16Matrix as_bf16(const Mxfp4Matrix& matrix, int64_t begin, int64_t end, bf16* panel) {
  const Bits bits;
  const int64_t whole = matrix.depth / Mxfp4Matrix::kStep * Mxfp4Matrix::kStep;
  const int64_t depth = round_up(matrix.depth, Mxfp4Matrix::kStep);
  auto* to            = reinterpret_cast<uint32_t*>(panel);
  for (int64_t n = begin; n < end; ++n)
    for (int64_t k = 0; k < depth; k += Mxfp4Matrix::kStep) {
      Floats w[Mxfp4Matrix::kVectors];
      k < whole ? matrix.expand(n, k, w) : matrix.expand_last(n, k, w);
#pragma GCC unroll 4
      for (int64_t v = 0; v < Mxfp4Matrix::kVectors; v += 2, to += kLanes)
        hn::Store(hn::Or(hn::ShiftRight<16>(hn::BitCast(bits, w[v])), hn::BitCast(bits, w[v + 1])), bits, to);
    }
  return {panel, depth, depth};
}
HWY_INLINE Bf16Matrix as_bf16(const Bf16Matrix& matrix, int64_t begin, int64_t, bf16*) {
  return matrix.from(begin);
}

// The products of `count` prepared rows with outputs [begin, end), panel by panel: calls
// take(first row, rows, first output, last, sums), sums(r, n) = sums[r * kPanel + n - first output].
template <class Matrix, class Take>
void dot_products(const Matrix& matrix, const float* const* rows, int64_t count, int64_t begin, int64_t end,
                  const TileScratch& scratch, const Take& take) {
  static constexpr decltype(&few_rows<1, Matrix>) kFew[] = {few_rows<1, Matrix>, few_rows<2, Matrix>,
                                                            few_rows<3, Matrix>, few_rows<4, Matrix>};
  for (int64_t n0 = begin; n0 < end; n0 += kPanel) {
    const int64_t n1 = std::min(n0 + kPanel, end);
    if (count <= kFewRows) {
      for (int64_t r = 0; r < count; r += 4)
        kFew[std::min<int64_t>(count - r, 4) - 1](matrix, rows + r, n0, n1, scratch.sums + r * kPanel);
      take(0, count, n0, n1, scratch.sums);
      continue;
    }
    const Bf16Matrix panel = as_bf16(matrix, n0, n1, scratch.panel);
    Ahead ahead{matrix.address(n1), matrix.address(std::min(n1 + kPanel, end))};
    const int64_t blocks = round_up(count, kRowBlock) / kRowBlock;
    const int64_t block  = round_up((count + blocks - 1) / blocks, kTileRows);
    for (int64_t r = 0; r < count; r += block) {
      const int64_t here = std::min(count - r, block);
      many_rows(panel, rows + r, here, n1 - n0, ahead, scratch.partials, scratch.sums);
      take(r, here, n0, n1, scratch.sums);
    }
  }
}

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // FATHOM_KERNELS_HAVE_TILE
#endif  // FATHOM_KERNELS_DOT_TILE
