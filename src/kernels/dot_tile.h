// Dot products of rows with the outputs of a weight matrix, for one instruction set: the inside of linear_cpu
// and experts_cpu. Included once for each (hwy/foreach_target.h), hence the unusual guard.
//
// A (row, output) has one vector of sums, which runs over the weights in one order and is folded by one tree,
// whichever other rows and outputs share its tile and wherever its weights were unpacked: its bits depend on
// that row and that output alone.
#if defined(FATHOM_KERNELS_DOT_TILE) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_KERNELS_DOT_TILE
#undef FATHOM_KERNELS_DOT_TILE
#else
#define FATHOM_KERNELS_DOT_TILE
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/dot_scratch.h"
#include "kernels/weight_matrix.h"

#if FATHOM_KERNELS_HAVE_TILE

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

// The sums of the lanes of kLanes vectors, one a lane. Overwrites them.
HWY_INLINE Floats fold(Floats* v) {
  const Lanes d;
#pragma GCC unroll 4
  for (int64_t n = kLanes / 2; n > 0; n /= 2)
#pragma GCC unroll 8
    for (int64_t i = 0; i < n; ++i)
      v[i] = hn::Add(hn::ConcatEven(d, v[2 * i + 1], v[2 * i]), hn::ConcatOdd(d, v[2 * i + 1], v[2 * i]));
  return v[0];
}

// Columns [begin, end) of kRows rows times the first kOutputs outputs, added to their vectors of sums; output
// c of row r has vector r * kOutputs + c. fetch(c, k), between the steps of outputs, is for prefetching:
// always inline, or g++ 12 takes it for a function without effect and drops it.
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

inline constexpr int64_t kTileRows = 4;

// A few rows: weights go from memory to registers, and their values to up to kTileRows rows there.
inline constexpr int64_t kFewRows = 8;

// Outputs [begin, end) of the matrix: sums(r, n) = sums[r * kPanel + n - begin].
template <int64_t kRows, class Matrix>
HWY_NOINLINE void few_rows(const Matrix& matrix, const float* const* rows, int64_t begin, int64_t end,
                           float* HWY_RESTRICT sums) {
  // Chains enough to cover the latency of an FMA, and more where there are registers: they share the rows,
  // which hardly fit into L1.
  constexpr int64_t kSums    = HWY_TARGET == HWY_AVX3 ? 16 : 8;
  constexpr int64_t kOutputs = std::min<int64_t>((kSums + kRows - 1) / kRows, 4);
  constexpr int64_t kFolded  = round_up(kRows * kOutputs, kLanes);
  // Weights of eight outputs are on their way from memory: 12 KB in MXFP4, 46 KB in bf16, for 2880 inputs.
  constexpr int64_t kOutputsAhead = 8;
  const Lanes d;
  for (int64_t n = begin; n < end;) {
    Matrix at           = matrix.from(n);
    const int64_t count = end - n < kOutputs ? 1 : kOutputs;
    if (count == 1) at.repeat();
    Floats sum[kFolded];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kFolded; ++i) sum[i] = hn::Zero(d);
    tile<kRows, kOutputs>(
        at, rows, 0, at.depth,
        sum, [&](int64_t c, int64_t k) __attribute__((always_inline)) { at.prefetch(c + kOutputsAhead, k); });
    HWY_ALIGN float folded[kFolded];
    for (int64_t i = 0; i < kFolded; i += kLanes) hn::Store(fold(sum + i), d, folded + i);
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < count; ++c) sums[r * kPanel + n - begin + c] = folded[r * kOutputs + c];
    n += count;
  }
}

// Many rows pass over a panel of outputs in bf16, kTileRows at a time, and over one piece of the columns
// after the other, so that what a tile reads, 28 KB, stays in L1. Between pieces the sums wait in memory.
inline constexpr int64_t kTileOutputs = HWY_TARGET == HWY_AVX3 ? 6 : 3;  // of 32 and 16 registers
inline constexpr int64_t kTileDepth   = 1024;
static_assert(kPartials >= kRowBlock * kTileOutputs * kLanes && kRowBlock * kTileOutputs % kLanes == 0);

// What tiles fetch of the next panel's weights meanwhile, from memory to L2, about as fast as memory gives
// it.
inline constexpr int64_t kAheadBytes = 4;  // for each column of a tile
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
HWY_NOINLINE void many_rows_tile(const Bf16Matrix& matrix, const float* const* rows, int64_t begin,
                                 int64_t end, const char* ahead, float* HWY_RESTRICT partials) {
  const Lanes d;
  constexpr int64_t kSums = kRows * kTileOutputs;
  Floats sum[kSums];
#pragma GCC unroll 24
  for (int64_t i = 0; i < kSums; ++i) sum[i] = begin == 0 ? hn::Zero(d) : hn::Load(d, partials + i * kLanes);
  tile<kRows, kTileOutputs>(
      matrix, rows, begin, end, sum, [&](int64_t c, int64_t k) __attribute__((always_inline)) {
        const int64_t line = c * 64;
        if (line < Bf16Matrix::kStep * kAheadBytes) hwy::Prefetch(ahead + (k - begin) * kAheadBytes + line);
      });
#pragma GCC unroll 24
  for (int64_t i = 0; i < kSums; ++i) hn::Store(sum[i], d, partials + i * kLanes);
}

// The first `outputs` of the matrix for `count` <= kRowBlock rows: sums(r, n) = sums[r * kPanel + n].
inline void many_rows(const Bf16Matrix& matrix, const float* const* rows, int64_t count, int64_t outputs,
                      Ahead& ahead, float* HWY_RESTRICT partials, float* HWY_RESTRICT sums) {
  static constexpr decltype(&many_rows_tile<1>) kTiles[kTileRows] = {many_rows_tile<1>, many_rows_tile<2>,
                                                                     many_rows_tile<3>, many_rows_tile<4>};
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

// The products of `count` prepared rows with outputs [begin, end), panel by panel: calls
// take(first row, rows, first output, last, sums), sums(r, n) = sums[r * kPanel + n - first output].
template <class Matrix, class Take>
void dot_products(const Matrix& matrix, const float* const* rows, int64_t count, int64_t begin, int64_t end,
                  const TileScratch& scratch, const Take& take) {
  static constexpr decltype(&few_rows<1, Matrix>) kFew[kTileRows] = {
      few_rows<1, Matrix>, few_rows<2, Matrix>, few_rows<3, Matrix>, few_rows<4, Matrix>};
  for (int64_t n0 = begin; n0 < end; n0 += kPanel) {
    const int64_t n1 = std::min(n0 + kPanel, end);
    if (count <= kFewRows) {
      for (int64_t r = 0; r < count; r += kTileRows)
        kFew[std::min(count - r, kTileRows) - 1](matrix, rows + r, n0, n1, scratch.sums + r * kPanel);
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
