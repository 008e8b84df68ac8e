// RMSNorm of rows of any length and alignment, one block a row: once over the row for its scale, once more to
// scale it. The second walk finds a row of some 100 KiB in L1 and a longer one in L2.
#pragma once

#include "cuda/check.h"
#include "cuda/stream.h"
#include "experiments/rows.cuh"

namespace fathom::lab::fused_rmsnorm_gpu {

template <int kThreads, int kWidth>
__global__ void __launch_bounds__(kThreads)
    two_walks_kernel(View<const bf16, 2> x, View<const bf16, 1> weight, float epsilon, View<bf16, 2> y) {
  using rows::Elements, rows::load, rows::store;
  __shared__ rows::Partial<kThreads> partial;
  const int dim    = static_cast<int>(x.extent(1));
  const bf16* from = x.data() + blockIdx.x * x.stride(0);
  bf16* to         = y.data() + blockIdx.x * y.stride(0);
  float squares    = 0;
#pragma unroll 4
  for (int d = threadIdx.x * kWidth; d < dim; d += kThreads * kWidth) {
    const Elements<kWidth> v = load<kWidth>(from + d);
    for (const float e : v.at) squares += e * e;
  }
  squares       = rows::over_row(squares, rows::Plus{}, partial);
  const float s = rsqrtf(squares / static_cast<float>(dim) + epsilon);
#pragma unroll 4
  for (int d = threadIdx.x * kWidth; d < dim; d += kThreads * kWidth) {
    Elements<kWidth> v       = load<kWidth>(from + d);
    const Elements<kWidth> w = load<kWidth>(weight.data() + d);
    for (int e = 0; e < kWidth; ++e) v.at[e] *= s * w.at[e];
    store<kWidth>(to + d, v);
  }
}

inline void rmsnorm_in_two_walks(View<const bf16, 2> x, View<const bf16, 1> weight, float epsilon,
                                 View<bf16, 2> y, StreamRef stream) {
  constexpr int kThreads = 256;
  if (x.size() == 0) return;
  FATHOM_EXPECT(x.extent(0) < (int64_t{1} << 31) && x.extent(1) < (int64_t{1} << 30),
                "rows are counted, and elements of a row addressed, in 31 bits");
  const auto tokens = static_cast<unsigned>(x.extent(0));
  if (rows::in_eights(x) && rows::in_eights(weight) && rows::in_eights(y))
    two_walks_kernel<kThreads, rows::kEight><<<tokens, kThreads, 0, stream>>>(x, weight, epsilon, y);
  else
    two_walks_kernel<kThreads, 1><<<tokens, kThreads, 0, stream>>>(x, weight, epsilon, y);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::fused_rmsnorm_gpu
