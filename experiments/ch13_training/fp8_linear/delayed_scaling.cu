// out(t, n) = sx sw sum_k code(t, k) wcode(n, k)      sx = max(the last 1024 amax) / 448
//
// bytes   3 T K for x, then T K + N K + 2 T N; and the history, 4 KB, from L2 for each CTA
// flops   2 T N K
// limit   tensor cores, e4m3
// idea    the scale is known before the pass begins, and the pass finds this step's amax for the next ones.
//         Each CTA works out the scale itself: a launch of its own would take as long as a tenth of the pass
#include <cuda_fp8.h>

#include "cuda/check.h"
#include "kernels/gemm/scaled_mm_fp8.h"
#include "linear.h"

namespace fathom::lab::fp8_linear {
namespace {

constexpr int kThreads = 256, kVectors = 4;  // of 8 numbers, a thread
constexpr float kLargest = 448;

// Of positive floats, whose bits are ordered as they are. All threads call it; all get the result.
__device__ float block_max(float value, uint32_t (&of_warp)[kThreads / 32]) {
  const uint32_t largest = __reduce_max_sync(~0u, __float_as_uint(value));
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();  // all warps have written before any reads
  uint32_t all = 0;
#pragma unroll
  for (const uint32_t of : of_warp) all = max(all, of);
  return __uint_as_float(all);
}

__device__ float2 two(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

// Scales two numbers, and keeps the largest magnitude.
__device__ uint32_t encode(uint32_t pair, float by, float& amax) {
  const float2 v = two(pair);
  amax           = fmaxf(amax, fmaxf(fabsf(v.x), fabsf(v.y)));
  return __nv_cvt_float2_to_fp8x2({v.x * by, v.y * by}, __NV_SATFINITE, __NV_E4M3);
}

__global__ void __launch_bounds__(kThreads)
    quantize_delayed_kernel(const uint4* x, int64_t vectors, View<const float, 1> history, int margin,
                            uint2* codes, float* scale, float* amax_of_x) {
  __shared__ uint32_t of_history[kThreads / 32], of_x[kThreads / 32];
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kVectors) + threadIdx.x;
  uint4 v[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    v[i] = first + i * kThreads < vectors ? __ldcs(x + first + i * kThreads) : uint4{};

  float largest = 0;
  for (int i = threadIdx.x; i < history.extent(0); i += kThreads) largest = fmaxf(largest, history(i));
  const float by_scale = kernels::fp8_scale(block_max(largest, of_history), kLargest, margin);
  if (blockIdx.x == 0 && threadIdx.x == 0) *scale = by_scale;
  const float by = 1 / by_scale;

  float amax = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint32_t a = encode(v[i].x, by, amax), b = encode(v[i].y, by, amax), c = encode(v[i].z, by, amax),
                   d = encode(v[i].w, by, amax);
    if (first + i * kThreads < vectors) codes[first + i * kThreads] = {a | b << 16, c | d << 16};
  }
  amax = block_max(amax, of_x);
  if (threadIdx.x == 0) atomicMax(reinterpret_cast<uint32_t*>(amax_of_x), __float_as_uint(amax));
}

}  // namespace

void delayed_scaling(const Linear& p, StreamRef stream) {
  const int64_t vectors = p.x.size() / 8;
  if (vectors == 0) return;
  FATHOM_CUDA(cudaMemsetAsync(p.amax.data(), 0, sizeof(float), stream));
  quantize_delayed_kernel<<<blocks_for(vectors, kThreads * kVectors), kThreads, 0, stream>>>(
      reinterpret_cast<const uint4*>(p.x.data()), vectors, p.amax_history, kDelayed.margin,
      reinterpret_cast<uint2*>(p.codes.data()), p.scales.data(), p.amax.data());
  FATHOM_LAUNCHED();
  kernels::scaled_mm_fp8(p.codes, p.scale(), p.w_of_tensor, p.tensor_scale, p.out, stream);
}

}  // namespace fathom::lab::fp8_linear
