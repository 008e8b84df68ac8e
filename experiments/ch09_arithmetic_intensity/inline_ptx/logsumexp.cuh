// One walk over each row, for any way to take a maximum and an exponential. `Arithmetic` has
//   static float highest(uint4)                     of 8 bf16
//   static float exponential(float x, float by)     e^(x - by), x <= by
#pragma once

#include "cuda/check.h"
#include "experiments/ch09_arithmetic_intensity/online_softmax_gpu/normalizer.cuh"
#include "experiments/rows.cuh"
#include "logsumexp.h"

namespace fathom::lab::inline_ptx {

using online_softmax_gpu::Normalizer;

inline constexpr int kThreads = 512;
// Vectors of 8 at a time: their loads are in flight together, and the sum is corrected once for all.
inline constexpr int kAtOnce = 4;

template <class Arithmetic, int kVectors>
__device__ inline void take(Normalizer& n, const uint4 (&packed)[kVectors]) {
  float highest = Arithmetic::highest(packed[0]);
#pragma unroll
  for (int k = 1; k < kVectors; ++k) highest = fmaxf(highest, Arithmetic::highest(packed[k]));
  if (highest > n.largest) {
    n.sum *= Arithmetic::exponential(n.largest, highest);
    n.largest = highest;
  }
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const rows::Elements<rows::kEight> v = rows::unpack_again(packed[k]);
    float of_vector                      = Arithmetic::exponential(v.at[0], n.largest);
    for (int i = 1; i < rows::kEight; ++i) of_vector += Arithmetic::exponential(v.at[i], n.largest);
    n.sum += of_vector;
  }
}

__device__ inline void write(Normalizer n, float* out) {
  __shared__ rows::Partial<kThreads> of_largest, of_sum;
  n = online_softmax_gpu::over_row(n, of_largest, of_sum);
  if (threadIdx.x == 0) *out = n.largest + logf(n.sum);
}

template <class Arithmetic>
__global__ void __launch_bounds__(kThreads) logsumexp_kernel(View<const bf16, 2> in, View<float, 1> out) {
  const uint4* row  = rows::eights(in.data() + blockIdx.x * in.stride(0));
  const int vectors = static_cast<int>(in.extent(1)) / rows::kEight;
  Normalizer n;
  int i = threadIdx.x;
  for (; i + (kAtOnce - 1) * kThreads < vectors; i += kAtOnce * kThreads) {
    uint4 packed[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) packed[k] = rows::load_once(row + i + k * kThreads);
    take<Arithmetic>(n, packed);
  }
  for (; i < vectors; i += kThreads) {
    const uint4 packed[1] = {rows::load_once(row + i)};
    take<Arithmetic>(n, packed);
  }
  write(n, &out(blockIdx.x));
}

// Rows that do not begin, or end, at a multiple of 16 bytes.
template <class Arithmetic>
__global__ void __launch_bounds__(kThreads) one_by_one_kernel(View<const bf16, 2> in, View<float, 1> out) {
  const bf16* row = in.data() + blockIdx.x * in.stride(0);
  const int cols  = static_cast<int>(in.extent(1));
  Normalizer n;
  for (int c = threadIdx.x; c < cols; c += kThreads) {
    const float x = rows::load<1>(row + c).at[0];
    if (x > n.largest) {
      n.sum *= Arithmetic::exponential(n.largest, x);
      n.largest = x;
    }
    n.sum += Arithmetic::exponential(x, n.largest);
  }
  write(n, &out(blockIdx.x));
}

template <class Arithmetic>
void launch(const LogSumExp& p, StreamRef stream) {
  if (p.in.size() == 0) return;
  FATHOM_EXPECT(p.in.extent(0) < (int64_t{1} << 31) && p.in.extent(1) < (int64_t{1} << 30),
                "rows are counted, and elements of a row addressed, in 31 bits");
  const auto kernel = rows::in_eights(p.in) ? logsumexp_kernel<Arithmetic> : one_by_one_kernel<Arithmetic>;
  kernel<<<static_cast<unsigned>(p.in.extent(0)), kThreads, 0, stream>>>(p.in, p.out);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::inline_ptx
