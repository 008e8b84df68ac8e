// RMSNorm and quantisation of up to 8 rows by a CTA: codes to wherever the caller wants them.
//
// 1 / rms(x) is one positive number of a row, so max|y| = max|x gamma| / rms(x): both reductions need only x
// and gamma, and share one walk and one barrier.
#pragma once

#include <cuda_runtime.h>

#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"
#include "layers.h"

namespace fathom::lab::norm_quantize_matvec {

inline constexpr int kWarps = 8, kThreads = 32 * kWarps;

struct NormInput {
  const bf16* x;      // rows x inputs
  const bf16* gamma;  // inputs
  int rows, inputs;   // a multiple of 8
};

__device__ inline float2 two(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}
// x gamma of eight numbers; adds up x^2, and keeps the largest |x gamma|.
struct Products {
  float at[8];

  __device__ Products(uint4 x, uint4 gamma) {
    const uint32_t of_x[4] = {x.x, x.y, x.z, x.w}, of_gamma[4] = {gamma.x, gamma.y, gamma.z, gamma.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 v = two(of_x[i]), g = two(of_gamma[i]);
      at[2 * i] = v.x * g.x, at[2 * i + 1] = v.y * g.y;
    }
  }
  __device__ float largest() const {
    float most = 0;
#pragma unroll
    for (const float v : at) most = fmaxf(most, fabsf(v));
    return most;
  }
  __device__ uint2 encode(float by) const {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = ptx::cvt_e4m3x2(at[2 * i] * by, at[2 * i + 1] * by);
    return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
  }
};
__device__ inline float squares(uint4 x) {
  const float2 a = two(x.x), b = two(x.y), c = two(x.z), d = two(x.w);
  return (a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y) + (c.x * c.x + c.y * c.y + d.x * d.x + d.y * d.y);
}

// Calls store(row, vector, codes) for vectors 0 .. vectors of kRows rows, eight codes each, with zeros where
// there is no input; returns the scale of row `warp / (kWarps / kRows)`. All threads of the CTA call it.
// kRows: 1, 2, 4 or 8, at least in.rows.
template <int kRows, class Store>
__device__ float norm_quantize(const NormInput& in, int vectors, const Store& store) {
  constexpr int kWarpsOfRow = kWarps / kRows, kThreadsOfRow = 32 * kWarpsOfRow;
  __shared__ float2 of_warp[kWarps];
  const int warp = threadIdx.x / 32, row = warp / kWarpsOfRow;
  const int first       = threadIdx.x % kThreadsOfRow;
  const int of_row      = row < in.rows ? in.inputs / 8 : 0;  // vectors of input
  const uint4* const x  = reinterpret_cast<const uint4*>(in.x + int64_t{row} * in.inputs);
  const uint4* const by = reinterpret_cast<const uint4*>(in.gamma);

  float sum = 0, largest = 0;
#pragma unroll 4
  for (int v = first; v < of_row; v += kThreadsOfRow) {
    const uint4 numbers = x[v];
    sum += squares(numbers);
    largest = fmaxf(largest, Products(numbers, __ldg(by + v)).largest());
  }
  sum     = warp_reduce_sum(sum);
  largest = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(largest)));  // not negative
  if constexpr (kWarpsOfRow > 1) {
    if (threadIdx.x % 32 == 0) of_warp[warp] = {sum, largest};
    __syncthreads();  // all warps have written before any reads
    sum = largest = 0;
#pragma unroll
    for (int w = 0; w < kWarpsOfRow; ++w) {
      const float2 of = of_warp[row * kWarpsOfRow + w];
      sum += of.x;
      largest = fmaxf(largest, of.y);
    }
  }
  const float root   = rsqrtf(sum / static_cast<float>(in.inputs) + kEpsilon);
  const float scale  = fmaxf(root * largest * (1.0f / 448), 0x1p-64f);
  const float factor = root / scale;
#pragma unroll 4
  for (int v = first; v < vectors; v += kThreadsOfRow)
    store(row, v, v < of_row ? Products(x[v], __ldg(by + v)).encode(factor) : uint2{});
  return scale;
}

}  // namespace fathom::lab::norm_quantize_matvec
