// The register tile of a matrix product: kMr x kNr of C stay in vector registers while k runs. Included once
// for each instruction set (hwy/foreach_target.h), hence the unusual guard.
#if defined(FATHOM_MATMUL_MICRO_KERNEL) == defined(HWY_TARGET_TOGGLE)
#ifdef FATHOM_MATMUL_MICRO_KERNEL
#undef FATHOM_MATMUL_MICRO_KERNEL
#else
#define FATHOM_MATMUL_MICRO_KERNEL
#endif

#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::lab::matmul_cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes  = hn::CappedTag<float, 16>;

// Two vectors wide: the 16 registers of AVX2 hold 12 of C, 2 of B and 1 of A; the 32 of AVX-512 hold 28, 2
// and 1. Either way more than the 8 to 10 independent FMAs that cover their latency.
inline constexpr int64_t kMr = HWY_TARGET == HWY_AVX3 ? 14 : 6;
inline constexpr int64_t kNr = 2 * static_cast<int64_t>(hn::MaxLanes(Lanes()));

// c(i, j) = [c(i, j) +] sum_k a(i, k) b(k, j) for i < kMr, j < kNr, k < depth, where a(i, k) = a[i * a_row +
// k * a_step] and b(k, j) = b[k * b_step + j].
HWY_INLINE void micro_kernel(int64_t depth, const float* HWY_RESTRICT a, int64_t a_row, int64_t a_step,
                             const float* HWY_RESTRICT b, int64_t b_step, float* HWY_RESTRICT c,
                             int64_t c_row, bool add) {
  const Lanes d;
  using V = hn::Vec<Lanes>;
  V c0[kMr], c1[kMr];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kMr; ++i) {
    c0[i] = c1[i] = hn::Zero(d);
    hwy::Prefetch(c + i * c_row);  // not needed before the sums are done
    hwy::Prefetch(c + i * c_row + kNr - 1);
  }
  for (int64_t k = 0; k < depth; ++k) {
    const V b0 = hn::LoadU(d, b);
    const V b1 = hn::LoadU(d, b + kNr / 2);
#pragma GCC unroll 16
    for (int64_t i = 0; i < kMr; ++i) {
      const V ai = hn::Set(d, a[i * a_row]);
      c0[i]      = hn::MulAdd(ai, b0, c0[i]);
      c1[i]      = hn::MulAdd(ai, b1, c1[i]);
    }
    a += a_step;
    b += b_step;
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < kMr; ++i) {
    float* row = c + i * c_row;
    if (add) {
      c0[i] = hn::Add(c0[i], hn::LoadU(d, row));
      c1[i] = hn::Add(c1[i], hn::LoadU(d, row + kNr / 2));
    }
    hn::StoreU(c0[i], d, row);
    hn::StoreU(c1[i], d, row + kNr / 2);
  }
}

}  // namespace fathom::lab::matmul_cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // FATHOM_MATMUL_MICRO_KERNEL
