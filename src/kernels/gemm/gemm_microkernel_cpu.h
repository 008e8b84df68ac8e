// Dot products of rows with the outputs of a weight matrix, for one instruction set: the micro-kernel of
// linear_cpu and experts_cpu. Included once for each instruction set (hwy/foreach_target.h), hence the
// unusual guard.
//
// Each (row, output) has one vector of partial sums. It accumulates over the weights in one order and is
// reduced by one tree, whichever rows and outputs share its tile and wherever its weights were dequantised.
// So its bits depend on that row and that output alone.
#if defined(FATHOM_KERNELS_GEMM_MICROKERNEL_CPU) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_KERNELS_GEMM_MICROKERNEL_CPU
#undef FATHOM_KERNELS_GEMM_MICROKERNEL_CPU
#else
#define FATHOM_KERNELS_GEMM_MICROKERNEL_CPU
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/gemm/gemm_scratch_cpu.h"
#include "kernels/gemm/weight_dequantize_cpu.h"

#if FATHOM_KERNELS_HAVE_GEMM_MICROKERNEL

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {

// Horizontal sums of kLanes vectors: lane i of the result is the sum of v[i]. Overwrites v.
HWY_INLINE Floats horizontal_sums(Floats* v) {
  const Lanes d;
#pragma GCC unroll 4
  for (int64_t n = kLanes / 2; n > 0; n /= 2)
#pragma GCC unroll 8
    for (int64_t i = 0; i < n; ++i)
      v[i] = hn::Add(hn::ConcatEven(d, v[2 * i + 1], v[2 * i]), hn::ConcatOdd(d, v[2 * i + 1], v[2 * i]));
  return v[0];
}

// Adds the products of columns [begin, end) of kRows rows with the first kOutputs outputs to their vectors of
// sums; output c of row r has vector r * kOutputs + c. fetch(c, k) is called between outputs, for
// prefetching. It must be always_inline, or g++ 12 takes it for a function without effect and drops it.
template <int64_t kRows, int64_t kOutputs, class Matrix, class Fetch>
HWY_INLINE void tile(const Matrix& matrix, const float* const* rows, int64_t begin, int64_t end, Floats* sums,
                     const Fetch& fetch) {
  const Lanes d;
  const auto step = [&](int64_t k, auto last) HWY_ATTR {
#pragma GCC unroll 8
    for (int64_t c = 0; c < kOutputs; ++c) {
      Floats w[Matrix::kVectors];
      last ? matrix.dequantize_last(c, k, w) : matrix.dequantize(c, k, w);
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

// Up to this many rows read weights from memory directly into registers, where each weight serves up to
// kTileRows rows.
inline constexpr int64_t kMaxGemvRows = 8;

// Outputs whose weights gemv_rows reads at once: enough independent chains to cover the latency of an FMA,
// and more where there are registers, since they share the loads of rows, which hardly fit into L1. With
// AVX-512 one row of bf16 needs so little arithmetic that the pattern of the reads decides: one stream
// through memory is 1.2 to 1.4 times as fast as four on a Zen 4, whatever is prefetched.
template <int64_t kRows, class Matrix>
inline constexpr int64_t kGemvOutputs =
    HWY_TARGET == HWY_AVX3&& kRows == 1 && std::is_same_v<Matrix, Bf16Matrix>
        ? 1
        : std::min<int64_t>(((HWY_TARGET == HWY_AVX3 ? 16 : 8) + kRows - 1) / kRows, 4);

// Sums for outputs [begin, end) of a panel: sums(r, n) = sums[r * kPanel + n - begin].
template <int64_t kRows, class Matrix>
HWY_NOINLINE void gemv_rows(const Matrix& matrix, const float* const* rows, int64_t begin, int64_t end,
                            float* HWY_RESTRICT sums) {
  constexpr int64_t kOutputs = kGemvOutputs<kRows, Matrix>;
  constexpr int64_t kFolded  = round_up(kRows * kPanel, kLanes);
  // Prefetches the weights of eight outputs ahead: 12 KB in MXFP4, 46 KB in bf16, with 2880 inputs.
  constexpr int64_t kPrefetchedOutputs = 8;
  const Lanes d;
  HWY_ALIGN float partials[kFolded * kLanes] = {};
  for (int64_t n = begin; n < end;) {
    Matrix at           = matrix.from(n);
    const int64_t count = end - n < kOutputs ? 1 : kOutputs;
    if (count < kOutputs) at.repeat();
    Floats sum[kRows * kOutputs];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kRows * kOutputs; ++i) sum[i] = hn::Zero(d);
    tile<kRows, kOutputs>(
        at, rows, 0, at.depth, sum, [&](int64_t c, int64_t k) __attribute__((always_inline)) {
          if constexpr (kOutputs > 1) at.prefetch(c + kPrefetchedOutputs, k);
        });
    // Constant indices, lest the sums lie in memory during the loop.
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int64_t c = 0; c < kOutputs; ++c)
        if (c < count) hn::Store(sum[r * kOutputs + c], d, partials + (r * kPanel + n - begin + c) * kLanes);
    n += count;
  }
  HWY_ALIGN float folded[kFolded];
  for (int64_t i = 0; i < kFolded; i += kLanes) {
    Floats v[kLanes];
#pragma GCC unroll 16
    for (int64_t j = 0; j < kLanes; ++j) v[j] = hn::Load(d, partials + (i + j) * kLanes);
    hn::Store(horizontal_sums(v), d, folded + i);
  }
  std::copy_n(folded, kRows * kPanel, sums);
}

// Many rows pass over a panel of weights in bf16 or fp32, kTileRows at a time, and over one piece of the
// columns after the other, so that the 28 KB that a tile reads stay in L1 (fp32 with AVX-512: 20 KB). Between
// pieces the partial sums are kept in memory.
inline constexpr int64_t kTileOutputs = HWY_TARGET == HWY_AVX3 ? 6 : 3;  // of 32 and of 16 registers
template <class Panel>
inline constexpr int64_t kTileDepth =
    std::is_same_v<Panel, FloatMatrix>&& HWY_TARGET == HWY_AVX3 ? 512 : 1024;
static_assert(kPartials >= kRowBlock * kTileOutputs * kLanes && kRowBlock * kTileOutputs % kLanes == 0);

// While tiles compute, they prefetch the next panel's weights from memory to L2, at about the rate of memory.
inline constexpr int64_t kPrefetchBytes = 4;  // for each column of a tile
struct Prefetcher {
  const char* at;
  const char* end;

  // The next bytes to prefetch; where none are left, some that are in a cache anyway.
  const char* take(int64_t bytes, const float* near) {
    if (at >= end) return reinterpret_cast<const char*>(near);
    at += bytes;
    return at - bytes;
  }
};

template <int64_t kRows, class Panel>
HWY_NOINLINE void gemm_rows_tile(const Panel& matrix, const float* const* rows, int64_t begin, int64_t end,
                                 const char* prefetch, float* HWY_RESTRICT partials) {
  const Lanes d;
  constexpr int64_t kSums = kRows * kTileOutputs;
  Floats sum[kSums];
#pragma GCC unroll 24
  for (int64_t i = 0; i < kSums; ++i) sum[i] = begin == 0 ? hn::Zero(d) : hn::Load(d, partials + i * kLanes);
  tile<kRows, kTileOutputs>(
      matrix, rows, begin, end, sum, [&](int64_t c, int64_t k) __attribute__((always_inline)) {
        const int64_t line = c * 64;
        if (line < Panel::kStep * kPrefetchBytes)
          hwy::Prefetch(prefetch + (k - begin) * kPrefetchBytes + line);
      });
#pragma GCC unroll 24
  for (int64_t i = 0; i < kSums; ++i) hn::Store(sum[i], d, partials + i * kLanes);
}

// Sums for the first `outputs` outputs and `count` <= kRowBlock rows: sums(r, n) = sums[r * kPanel + n].
template <class Panel>
void gemm_rows(const Panel& matrix, const float* const* rows, int64_t count, int64_t outputs,
               Prefetcher& prefetch, float* HWY_RESTRICT partials, float* HWY_RESTRICT sums) {
  static constexpr decltype(&gemm_rows_tile<1, Panel>) kTiles[kTileRows] = {
      gemm_rows_tile<1, Panel>, gemm_rows_tile<2, Panel>, gemm_rows_tile<3, Panel>, gemm_rows_tile<4, Panel>};
  const Lanes d;
  for (int64_t n = 0; n < outputs;) {
    Panel at           = matrix.from(n);
    const int64_t some = outputs - n < kTileOutputs ? 1 : kTileOutputs;
    if (some == 1) at.repeat();
    int64_t k = 0;
    do {  // at least once, so that sums of no terms are zero
      const int64_t end = std::min(k + kTileDepth<Panel>, at.depth);
      for (int64_t r = 0; r < count; r += kTileRows)
        kTiles[std::min(count - r, kTileRows) - 1](at, rows + r, k, end,
                                                   prefetch.take((end - k) * kPrefetchBytes, *rows),
                                                   partials + r * kTileOutputs * kLanes);
      k = end;
    } while (k < at.depth);
    for (int64_t i = 0; i < count * kTileOutputs; i += kLanes) {
      Floats v[kLanes];
#pragma GCC unroll 16
      for (int64_t j = 0; j < kLanes; ++j) v[j] = hn::Load(d, partials + (i + j) * kLanes);
      HWY_ALIGN float folded[kLanes];
      hn::Store(horizontal_sums(v), d, folded);
      for (int64_t j = i; j < std::min(i + kLanes, count * kTileOutputs); ++j)
        if (j % kTileOutputs < some) sums[j / kTileOutputs * kPanel + n + j % kTileOutputs] = folded[j - i];
    }
    n += some;
  }
}

// The products of `count` permuted rows with outputs [begin, end), panel by panel. For each panel and block
// of rows calls take(first row, rows, first output, end output, sums), with sums(r, n) = sums[r * kPanel + n
// - first output].
template <class Matrix, class Take>
void dot_products(const Matrix& matrix, const float* const* rows, int64_t count, int64_t begin, int64_t end,
                  const TileScratch& scratch, const Take& take) {
  static constexpr decltype(&gemv_rows<1, Matrix>) kGemvRows[kTileRows] = {
      gemv_rows<1, Matrix>, gemv_rows<2, Matrix>, gemv_rows<3, Matrix>, gemv_rows<4, Matrix>};
  for (int64_t n0 = begin; n0 < end; n0 += kPanel) {
    const int64_t n1 = std::min(n0 + kPanel, end);
    if (count <= kMaxGemvRows) {
      for (int64_t r = 0; r < count; r += kTileRows)
        kGemvRows[std::min(count - r, kTileRows) - 1](matrix, rows + r, n0, n1, scratch.sums + r * kPanel);
      take(0, count, n0, n1, scratch.sums);
      continue;
    }
    const auto panel = shared_panel(matrix, n0, n1, scratch.panel);
    Prefetcher prefetch{matrix.address(n1), matrix.address(std::min(n1 + kPanel, end))};
    const int64_t blocks = round_up(count, kRowBlock) / kRowBlock;
    const int64_t block  = round_up((count + blocks - 1) / blocks, kTileRows);
    for (int64_t r = 0; r < count; r += block) {
      const int64_t here = std::min(count - r, block);
      gemm_rows(panel, rows + r, here, n1 - n0, prefetch, scratch.partials, scratch.sums);
      take(r, here, n0, n1, scratch.sums);
    }
  }
}

}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // FATHOM_KERNELS_HAVE_GEMM_MICROKERNEL
#endif  // FATHOM_KERNELS_GEMM_MICROKERNEL_CPU
