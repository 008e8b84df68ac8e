// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2   from L1 and L2: 4 (1/kMr + 1/kNr) bytes for each FMA, where tiled needs 12
// flops   2 n^3
// limit   FMA peak; lost where the rows of b, n floats apart, fall into few sets of the caches
// idea    kMr x kNr elements of out live in registers while k runs: kMr + kNr loads feed kMr kNr FMAs, and
//         none of them waits for a store
#include <algorithm>

#include "matmul.h"

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither: Highway would add code for SSSE3 and SSE4
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "experiments/ch09_arithmetic_intensity/matmul_cpu/register_blocked.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h: the register tile depends on the target.
#include "experiments/ch09_arithmetic_intensity/matmul_cpu/micro_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace fathom::lab::matmul_cpu::HWY_NAMESPACE {

// The rim of out that no full register tile covers.
void multiply_rim(const MatMul& p, int64_t i0, int64_t i1, int64_t j0, int64_t j1, int64_t k0, int64_t k1) {
  const int64_t n       = p.n;
  const float* a        = p.a.data();
  const float* b        = p.b.data();
  float* HWY_RESTRICT c = p.out.data();
  for (int64_t i = i0; i < i1; ++i) {
    if (k0 == 0) std::fill(c + i * n + j0, c + i * n + j1, 0.0f);
    for (int64_t k = k0; k < k1; ++k)
      for (int64_t j = j0; j < j1; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
  }
}

void multiply_in_registers(const MatMul& p) {
  constexpr int64_t kBlock = kMc / kMr * kMr;
  const int64_t n          = p.n;
  const int64_t i_full = n / kMr * kMr, j_full = n / kNr * kNr;
  for (int64_t k0 = 0; k0 < n; k0 += kKc) {
    const int64_t k1 = std::min(k0 + kKc, n);
    for (int64_t i0 = 0; i0 < i_full; i0 += kBlock) {
      const int64_t i1 = std::min(i0 + kBlock, i_full);
      for (int64_t j = 0; j < j_full; j += kNr)
        for (int64_t i = i0; i < i1; i += kMr)
          micro_kernel(k1 - k0, &p.a(i, k0), n, 1, &p.b(k0, j), n, &p.out(i, j), n, k0 > 0);
    }
    multiply_rim(p, 0, i_full, j_full, n, k0, k1);
    multiply_rim(p, i_full, n, 0, n, k0, k1);
  }
}

}  // namespace fathom::lab::matmul_cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fathom::lab::matmul_cpu {

HWY_EXPORT(multiply_in_registers);

void register_blocked(const MatMul& p, Context&) { HWY_DYNAMIC_DISPATCH(multiply_in_registers)(p); }

}  // namespace fathom::lab::matmul_cpu
#endif
