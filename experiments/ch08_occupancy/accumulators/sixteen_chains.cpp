// out(i) = sum over k of c(k) x(i)^k                       n points, degree 255, fp32
//
// bytes   8 n, and 1 KiB of coefficients that stay in L1
// flops   510 n
// limit   FMA peak: 2 x 8 lanes a cycle
// idea    sixteen: twice what the units need; 16 running values, 16 vectors of points and a coefficient do
//         not fit in 16 registers
#include "horner.h"

namespace fathom::lab::accumulators {
namespace {

constexpr int64_t kChains = 16;

}  // namespace

void sixteen_chains(const Polynomial& p, Context&) {
  const float* x         = p.x.data();
  const float* c         = p.c.data();
  constexpr int64_t kAll = kChains * kLanes;
  int64_t i              = 0;
  for (; i + kAll <= p.x.extent(0); i += kAll) {
    __m256 xs[kChains], r[kChains];
    for (int64_t q = 0; q < kChains; ++q) {
      xs[q] = _mm256_loadu_ps(x + i + q * kLanes);
      r[q]  = _mm256_set1_ps(c[kDegree]);
    }
    for (int64_t k = kDegree - 1; k >= 0; --k) {
      const __m256 ck = _mm256_set1_ps(c[k]);
#pragma GCC unroll 16
      for (int64_t q = 0; q < kChains; ++q) r[q] = _mm256_fmadd_ps(r[q], xs[q], ck);
    }
    for (int64_t q = 0; q < kChains; ++q) _mm256_storeu_ps(p.out.data() + i + q * kLanes, r[q]);
  }
  horner_rest(p, i);
}

}  // namespace fathom::lab::accumulators
