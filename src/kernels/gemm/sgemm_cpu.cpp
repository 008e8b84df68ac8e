// c(m, n) = sum_k a(m, k) b(k, n), or that added to c, in fp32
//
// bytes   4 (M K + K N + M N); packing reads b once, and a once for each 512 columns
// flops   2 M N K
// limit   the FMA units, from some 64 of each extent on
// idea    Both operands are packed, whatever their strides: b into panels of two vectors of columns, a into
//         panels as high as a tile. A tile keeps its sums in registers, 6 x 2 vectors of 16 registers or 12 x
//         2 of 32, for a block of k that keeps a panel of b in L1 and a's panels in L2. The next block of k
//         adds to c. Goto, van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008; the names
//         are BLIS's
#include "kernels/gemm/sgemm.h"

#include <algorithm>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/gemm/gemm_scratch_cpu.h"

#define HWY_DISABLE_PCLMUL_AES  // not part of x86-64-v3; else Highway adds code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/sgemm_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, because it is compiled for each instruction set.
#include "hwy/highway.h"

#ifndef FATHOM_KERNELS_SGEMM_CPU
#define FATHOM_KERNELS_SGEMM_CPU
namespace fathom::kernels {
namespace {

// Multiples of every tile: 6 and 12 rows, 2 vectors of up to 16 columns.
constexpr int64_t kMc = 96, kNc = 512, kKc = 256;
constexpr int64_t kMaxRows = 12, kMaxColumns = 32;

struct SgemmScratch {
  float* b;  // a block of b, shared: kKc x kNc
  float* a;  // of each thread: kMc x kKc

  SgemmScratch(int threads, ScratchAllocator& allocator)
      : b(allocator.take<float>(kKc * kNc)), a(allocator.take<float>(threads * kMc * kKc)) {}
};

}  // namespace
}  // namespace fathom::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {
namespace {

namespace hn     = hwy::HWY_NAMESPACE;
using SgemmLanes = hn::CappedTag<float, 16>;

constexpr int64_t kVector  = hn::MaxLanes(SgemmLanes());
constexpr int64_t kRows    = kVector == 16 ? 12 : 6;
constexpr int64_t kColumns = 2 * kVector;
static_assert(kMc % kRows == 0 && kNc % kColumns == 0 && kRows <= kMaxRows && kColumns <= kMaxColumns);

// Panels of kUnit lines side by side: line i of panel p at depth k is to[(p kc + k) kUnit + i], and zero
// where there is none. `lines` x `depth` numbers from `from`.
template <int64_t kUnit>
void pack(const float* from, int64_t line_stride, int64_t depth_stride, int64_t lines, int64_t depth,
          float* to) {
  for (int64_t first = 0; first < lines; first += kUnit) {
    const int64_t count = std::min(kUnit, lines - first);
    const float* corner = from + first * line_stride;
    for (int64_t k = 0; k < depth; ++k, to += kUnit) {
      const float* at = corner + k * depth_stride;
      for (int64_t i = 0; i < count; ++i) to[i] = at[i * line_stride];
      for (int64_t i = count; i < kUnit; ++i) to[i] = 0;
    }
  }
}

// kRows x kColumns sums over `depth`, to c.
HWY_INLINE void tile(int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                     float* HWY_RESTRICT c, int64_t stride, bool add) {
  const SgemmLanes d;
  hn::Vec<SgemmLanes> sums[kRows][2];
#pragma GCC unroll 12
  for (int64_t i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int64_t v = 0; v < 2; ++v)
      sums[i][v] = add ? hn::LoadU(d, c + i * stride + v * kVector) : hn::Zero(d);
  for (int64_t k = 0; k < depth; ++k) {
    const auto b0 = hn::Load(d, b), b1 = hn::Load(d, b + kVector);
#pragma GCC unroll 12
    for (int64_t i = 0; i < kRows; ++i) {
      const auto factor = hn::Set(d, a[i]);
      sums[i][0]        = hn::MulAdd(factor, b0, sums[i][0]);
      sums[i][1]        = hn::MulAdd(factor, b1, sums[i][1]);
    }
    a += kRows, b += kColumns;
  }
#pragma GCC unroll 12
  for (int64_t i = 0; i < kRows; ++i)
#pragma GCC unroll 2
    for (int64_t v = 0; v < 2; ++v) hn::StoreU(sums[i][v], d, c + i * stride + v * kVector);
}

// rows x columns of c, from packed a and b.
void block(const float* a, const float* b, int64_t rows, int64_t columns, int64_t depth, float* c,
           int64_t stride, bool add) {
  for (int64_t n = 0; n < columns; n += kColumns)
    for (int64_t m = 0; m < rows; m += kRows) {
      const float* of_a    = a + m * depth;
      const float* of_b    = b + n * depth;
      float* to            = c + m * stride + n;
      const int64_t height = std::min(kRows, rows - m), width = std::min(kColumns, columns - n);
      if (height == kRows && width == kColumns) {
        tile(depth, of_a, of_b, to, stride, add);
        continue;
      }
      HWY_ALIGN float edge[kMaxRows * kMaxColumns] = {};
      if (add)
        for (int64_t i = 0; i < height; ++i) std::copy_n(to + i * stride, width, edge + i * kColumns);
      tile(depth, of_a, of_b, edge, kColumns, add);
      for (int64_t i = 0; i < height; ++i) std::copy_n(edge + i * kColumns, width, to + i * stride);
    }
}

void sgemm(View<const float, 2> a, View<const float, 2> b, Output output, View<float, 2> c,
           const Execution& on) {
  const int64_t M = c.extent(0), N = c.extent(1), K = a.extent(1);
  const int threads = on.threads ? on.threads->threads() : 1;
  ScratchAllocator allocator(on.scratch);
  const SgemmScratch scratch(threads, allocator);
  // Whole units for each share; f(share, begin, end).
  const auto share_out = [&](int64_t n, int64_t unit, const auto& f) {
    const int64_t units = (n + unit - 1) / unit;
    const auto piece    = [&](int64_t share) {
      const int64_t begin = units * share / threads * unit;
      const int64_t end   = std::min(units * (share + 1) / threads * unit, n);
      if (begin < end) f(share, begin, end);
    };
    on.threads ? on.threads->run_shares(piece) : piece(0);
  };
  for (int64_t n0 = 0; n0 < N; n0 += kNc)
    for (int64_t k0 = 0; k0 < K; k0 += kKc) {
      const int64_t columns = std::min(kNc, N - n0), depth = std::min(kKc, K - k0);
      const bool add = output == Output::add || k0 > 0;
      share_out(columns, kColumns, [&](int64_t, int64_t begin, int64_t end) {
        pack<kColumns>(b.data() + k0 * b.stride(0) + (n0 + begin) * b.stride(1), b.stride(1), b.stride(0),
                       end - begin, depth, scratch.b + begin * depth);
      });
      share_out(M, kRows, [&](int64_t share, int64_t begin, int64_t end) {
        float* const packed = scratch.a + share * kMc * kKc;
        for (int64_t m0 = begin; m0 < end; m0 += kMc) {
          const int64_t rows = std::min(kMc, end - m0);
          pack<kRows>(a.data() + m0 * a.stride(0) + k0 * a.stride(1), a.stride(0), a.stride(1), rows, depth,
                      packed);
          block(packed, scratch.b, rows, columns, depth, c.data() + m0 * c.stride(0) + n0, c.stride(0), add);
        }
      });
    }
}

}  // namespace
}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::kernels {

HWY_EXPORT(sgemm);

void sgemm_cpu(View<const float, 2> a, View<const float, 2> b, Output output, View<float, 2> c,
               const Execution& on) {
  FATHOM_EXPECT(a.extent(1) == b.extent(0) && c.extent(0) == a.extent(0) && c.extent(1) == b.extent(1),
                "sgemm: a is [M, K], b [K, N], c [M, N]");
  FATHOM_EXPECT(c.extent(1) <= 1 || c.stride(1) == 1, "sgemm: rows of c must be contiguous");
  if (c.size() == 0) return;
  if (a.extent(1) == 0) {
    if (output == Output::overwrite)
      for (int64_t m = 0; m < c.extent(0); ++m) std::fill_n(&c(m, 0), c.extent(1), 0.0f);
    return;
  }
  HWY_DYNAMIC_DISPATCH(sgemm)(a, b, output, c, on);
}

int64_t sgemm_cpu_scratch_bytes(int threads) {
  ScratchAllocator counter;
  SgemmScratch(threads, counter);
  return counter.used();
}

}  // namespace fathom::kernels
#endif
