// Softmax of rows of any length and alignment, one block a row: a walk for maximum and sum, a walk for the
// result.
#pragma once

#include "cuda/check.h"
#include "cuda/stream.h"
#include "experiments/rows.cuh"
#include "normalizer.cuh"

namespace fathom::lab::online_softmax_gpu {

template <int kThreads, int kWidth>
__global__ void __launch_bounds__(kThreads) online_kernel(View<const bf16, 2> in, View<bf16, 2> out) {
  using rows::Elements, rows::load, rows::store;
  __shared__ rows::Partial<kThreads> of_largest, of_sum;
  const int cols   = static_cast<int>(in.extent(1));
  const bf16* from = in.data() + blockIdx.x * in.stride(0);
  bf16* to         = out.data() + blockIdx.x * out.stride(0);
  Normalizer n;
#pragma unroll 4
  for (int c = threadIdx.x * kWidth; c < cols; c += kThreads * kWidth) n.take(load<kWidth>(from + c));
  n = online_softmax_gpu::over_row(n, of_largest, of_sum);

  const float shift = n.largest * kLog2e, by = __fdividef(1.0f, n.sum);
#pragma unroll 4
  for (int c = threadIdx.x * kWidth; c < cols; c += kThreads * kWidth) {
    Elements<kWidth> v = load<kWidth>(from + c);
    for (float& x : v.at) x = exponential(x, shift) * by;
    store<kWidth>(to + c, v);
  }
}

inline void softmax_in_two_walks(View<const bf16, 2> in, View<bf16, 2> out, StreamRef stream) {
  constexpr int kThreads = 256;
  if (in.size() == 0) return;
  FATHOM_EXPECT(in.extent(0) < (int64_t{1} << 31) && in.extent(1) < (int64_t{1} << 30),
                "rows are counted, and elements of a row addressed, in 31 bits");
  const auto count = static_cast<unsigned>(in.extent(0));
  if (rows::in_eights(in) && rows::in_eights(out))
    online_kernel<kThreads, rows::kEight><<<count, kThreads, 0, stream>>>(in, out);
  else
    online_kernel<kThreads, 1><<<count, kThreads, 0, stream>>>(in, out);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::online_softmax_gpu
