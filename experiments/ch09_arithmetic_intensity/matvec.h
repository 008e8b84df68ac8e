// y(i) = sum_j a(i, j) x(j) for the rows of a row-major matrix: the dense product of a matrix and a vector,
// which sparse_matvec_cpu and low_rank_matvec_cpu start from. Each number of the matrix is read once, in the
// order in which it lies, for one multiply-add.
#pragma once

#include <cstdint>

#include "core/view.h"

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"

namespace fathom::lab {

inline void matvec(View<const float, 2> a, const float* x, float* y) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Lanes  = hn::ScalableTag<float>;
  const Lanes d;
  const auto lanes      = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kChains = 8;  // what two FMA units of latency 4 need
  for (int64_t i = 0; i < a.extent(0); ++i) {
    const float* row      = &a(i, 0);
    const int64_t columns = a.extent(1);
    hn::Vec<Lanes> sums[kChains];
#pragma GCC unroll 8
    for (auto& sum : sums) sum = hn::Zero(d);
    int64_t j = 0;
    for (; j + kChains * lanes <= columns; j += kChains * lanes)
#pragma GCC unroll 8
      for (int c = 0; c < kChains; ++c)
        sums[c] = hn::MulAdd(hn::LoadU(d, row + j + c * lanes), hn::LoadU(d, x + j + c * lanes), sums[c]);
    for (; j + lanes <= columns; j += lanes)
      sums[0] = hn::MulAdd(hn::LoadU(d, row + j), hn::LoadU(d, x + j), sums[0]);
#pragma GCC unroll 8
    for (int step = kChains / 2; step > 0; step /= 2)
#pragma GCC unroll 8
      for (int c = 0; c < step; ++c) sums[c] = hn::Add(sums[c], sums[c + step]);
    float total = hn::GetLane(hn::SumOfLanes(d, sums[0]));
    for (; j < columns; ++j) total += row[j] * x[j];
    y[i] = total;
  }
}

}  // namespace fathom::lab
