// y = A x                                       n x n, fp32
//
// bytes   4 n^2
// flops   2 n^2
// limit   bandwidth of the level that holds A
// idea    what the compiler may do now and does not: four rows at a time, two vectors of sums for each. Eight
//         chains hide the latency, and a vector of x serves four rows
#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"
#include "matvec.h"

namespace fathom::lab::autovectorization {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes  = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;

// y(i) = row i of a times x, for kRows rows.
template <int64_t kRows>
HWY_INLINE void multiply_rows(const float* a, const float* x, float* y, int64_t n) {
  const Lanes d;
  const int64_t lanes = hn::Lanes(d);
  Vector sums[kRows][2];
#pragma GCC unroll 4
  for (auto& of_row : sums) of_row[0] = of_row[1] = hn::Zero(d);
  int64_t k = 0;
  for (; k + 2 * lanes <= n; k += 2 * lanes) {
    const Vector x0 = hn::LoadU(d, x + k), x1 = hn::LoadU(d, x + k + lanes);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kRows; ++i) {
      sums[i][0] = hn::MulAdd(hn::LoadU(d, a + i * n + k), x0, sums[i][0]);
      sums[i][1] = hn::MulAdd(hn::LoadU(d, a + i * n + k + lanes), x1, sums[i][1]);
    }
  }
  for (int64_t i = 0; i < kRows; ++i) {
    float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sums[i][0], sums[i][1])));
    for (int64_t q = k; q < n; ++q) sum += a[i * n + q] * x[q];
    y[i] = sum;
  }
}

}  // namespace

void simd(const MatVec& p, Context&) {
  const int64_t n = p.x.size();
  int64_t i       = 0;
  for (; i + 4 <= n; i += 4) multiply_rows<4>(p.a.data() + i * n, p.x.data(), p.y.data() + i, n);
  for (; i < n; ++i) multiply_rows<1>(p.a.data() + i * n, p.x.data(), p.y.data() + i, n);
}

}  // namespace fathom::lab::autovectorization
