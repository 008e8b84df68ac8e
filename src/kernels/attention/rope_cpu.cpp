// x(k)        <- x(k) cos - x(k + Dh/2) sin
// x(k + Dh/2) <- x(k + Dh/2) cos + x(k) sin         k < Dh/2
//
// bytes   8 heads Dh a token
// limit   bandwidth of the cache that holds the rows
// idea    a token's cosines and sines stay in L1 while its heads are rotated
#include <algorithm>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/attention/rope.h"

#define HWY_DISABLE_PCLMUL_AES  // not part of x86-64-v3; else Highway adds code for SSSE3 and SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/rope_cpu.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, because it is compiled for each instruction set.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::kernels::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void rotate(float* HWY_RESTRICT head, const float* HWY_RESTRICT table, int64_t half) {
  const hn::CappedTag<float, 16> f;
  const auto lanes = static_cast<int64_t>(hn::Lanes(f));
  for (int64_t k = 0; k < half; k += lanes) {
    const auto some = hn::FirstN(f, static_cast<size_t>(std::min(lanes, half - k)));
    const auto a = hn::MaskedLoad(some, f, head + k), b = hn::MaskedLoad(some, f, head + half + k);
    const auto cos = hn::MaskedLoad(some, f, table + k), sin = hn::MaskedLoad(some, f, table + half + k);
    hn::BlendedStore(hn::NegMulAdd(b, sin, hn::Mul(a, cos)), some, f, head + k);
    hn::BlendedStore(hn::MulAdd(b, cos, hn::Mul(a, sin)), some, f, head + half + k);
  }
}

void rotate_rows(View<float, 3> x, View<const float, 2> table, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t)
    for (int64_t head = 0; head < x.extent(1); ++head) rotate(&x(t, head, 0), &table(t, 0), x.extent(2) / 2);
}

}  // namespace
}  // namespace fathom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::kernels {

HWY_EXPORT(rotate_rows);

void rope_cpu(View<float, 3> x, View<const float, 2> table, const Execution& on) {
  FATHOM_EXPECT(x.extent(2) % 2 == 0 && table.extent(0) == x.extent(0) && table.extent(1) == x.extent(2),
                "rope: x is [T, heads, Dh] with an even Dh, table [T, Dh]");
  FATHOM_EXPECT(x.stride(2) == 1 && table.stride(1) == 1,
                "rope: heads and rows of the table must be contiguous");
  FATHOM_EXPECT(on.threads != nullptr, "rope: Execution needs threads");
  on.threads->parallel_for(x.extent(0), 1, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rotate_rows)(x, table, begin, end);
  });
}

}  // namespace fathom::kernels
#endif
