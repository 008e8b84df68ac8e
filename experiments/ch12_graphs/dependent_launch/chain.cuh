// The two kernels of the chain, and their launches.
//
// No kernel of the chain writes the weights, so a kernel loads them before griddepcontrol.wait. If it begins
// while the one before it runs, the loads overlap with that. If it is launched as usual, the wait returns at
// once.
#pragma once

#include <cuda_bf16.h>

#include "chain.h"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"

namespace fathom::lab::dependent_launch {

// ---- y = weight x / rms(x), by one CTA ----

inline constexpr int kNormThreads = 256, kNormVectors = kMaxWidth / 4 / kNormThreads;

static __global__ void __launch_bounds__(kNormThreads)
    norm_kernel(const float* x, const float* weight, float* y, int width) {
  __shared__ float warp_sums[kNormThreads / 32];
  const int vectors = width / 4, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto at           = [](int v) { return static_cast<int>(threadIdx.x) + v * kNormThreads; };
  float4 by[kNormVectors] = {}, own[kNormVectors] = {};
#pragma unroll
  for (int v = 0; v < kNormVectors; ++v)
    if (at(v) < vectors) by[v] = reinterpret_cast<const float4*>(weight)[at(v)];
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  float squares = 0;
#pragma unroll
  for (int v = 0; v < kNormVectors; ++v) {
    if (at(v) < vectors) own[v] = reinterpret_cast<const float4*>(x)[at(v)];
    squares += own[v].x * own[v].x + own[v].y * own[v].y + own[v].z * own[v].z + own[v].w * own[v].w;
  }
  squares = warp_reduce_sum(squares);
  if (lane == 0) warp_sums[warp] = squares;
  __syncthreads();  // warp_sums is complete
  const float whole = warp_reduce_sum(lane < kNormThreads / 32 ? warp_sums[lane] : 0);
  const float scale = rsqrtf(whole / static_cast<float>(width) + kEpsilon);
#pragma unroll
  for (int v = 0; v < kNormVectors; ++v)
    if (at(v) < vectors)
      reinterpret_cast<float4*>(y)[at(v)] = {own[v].x * scale * by[v].x, own[v].y * scale * by[v].y,
                                             own[v].z * scale * by[v].z, own[v].w * scale * by[v].w};
}

// ---- out = x + w y, two rows of w a warp ----

inline constexpr int kRows = 2, kWarps = 4, kRowsOfCta = kRows * kWarps;
inline constexpr int kVectors = kMaxWidth / 8 / 32;  // 16-byte vectors of a row, a lane
static_assert(kRowsOfCta == kMultiple);

__device__ inline float2 pair(uint32_t two) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&two));
}

// The dot product of 8 elements.
__device__ inline float dot(uint4 w, float4 low, float4 high) {
  const float2 a = pair(w.x), b = pair(w.y), c = pair(w.z), d = pair(w.w);
  return a.x * low.x + a.y * low.y + b.x * low.z + b.y * low.w + c.x * high.x + c.y * high.y + d.x * high.z +
         d.y * high.w;
}

static __global__ void __launch_bounds__(32 * kWarps)
    add_product_kernel(const bf16* w, const float* y, const float* x, float* out, int width) {
  const int lane = threadIdx.x % 32, vectors = width / 8;
  const int row                  = blockIdx.x * kRowsOfCta + threadIdx.x / 32 * kRows;
  uint4 weights[kVectors][kRows] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (v * 32 + lane < vectors)
        weights[v][r] = reinterpret_cast<const uint4*>(w + (row + r) * width)[v * 32 + lane];
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();

  float sum[kRows] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (v * 32 + lane >= vectors) break;
    const float4 low  = reinterpret_cast<const float4*>(y)[2 * (v * 32 + lane)];
    const float4 high = reinterpret_cast<const float4*>(y)[2 * (v * 32 + lane) + 1];
#pragma unroll
    for (int r = 0; r < kRows; ++r) sum[r] += dot(weights[v][r], low, high);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float whole = warp_reduce_sum(sum[r]);
    if (lane == r) out[row + r] = x[row + r] + whole;
  }
}

// ---- the chain ----

// kDependent: each kernel may begin while the one before it ends.
template <bool kDependent, class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, StreamRef stream,
            Arguments... arguments) {
  if constexpr (kDependent) {
    launch_with_pdl(kernel, dim3(blocks), dim3(threads), 0, stream, arguments...);
  } else {
    kernel<<<blocks, threads, 0, stream>>>(arguments...);
    FATHOM_LAUNCHED();
  }
}

template <bool kDependent>
void launch_chain(const Chain& p, StreamRef stream) {
  if (p.width == 0) return;
  const int width = static_cast<int>(p.width);
  const float* x  = p.x.data();
  for (int64_t l = 0; l < p.w.extent(0); ++l) {
    launch<kDependent>(norm_kernel, 1, kNormThreads, stream, x, &p.norm(l, 0), p.y.data(), width);
    launch<kDependent>(add_product_kernel, static_cast<unsigned>(width / kRowsOfCta), 32 * kWarps, stream,
                       &p.w(l, 0, 0), p.y.data(), x, p.out.data(), width);
    x = p.out.data();
  }
}

}  // namespace fathom::lab::dependent_launch
