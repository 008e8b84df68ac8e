// y(t, h) = x(t, h) norm(h) / sqrt(mean_h x(t, h)^2 + epsilon)      x fp32, y bf16
//
// bytes   6 T H    x read, y written
// flops   4 T H
// limit   DRAM bandwidth. H200: 4096 rows of 2880 are 71 MB, 18 us at the 3.98 TB/s of a copy
// idea    a CTA has a row in the registers of its threads
#include "cuda/bf16_pack.cuh"
#include "cuda/check.h"
#include "cuda/warp_reduce.cuh"
#include "routing.h"

namespace fathom::lab::fused_norm_router {
namespace {

constexpr int kThreads = 256, kVectors = kMaxWidth / 4 / kThreads;  // float4 a thread

__global__ void __launch_bounds__(kThreads)
    norm_kernel(const float* x, const float* norm, bf16* y, int width) {
  __shared__ float warp_sums[kThreads / 32];
  const int vectors = width / 4, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row    = blockIdx.x;
  const auto at        = [](int v) { return static_cast<int>(threadIdx.x) + v * kThreads; };
  const float4* from   = reinterpret_cast<const float4*>(x + row * width);
  float4 own[kVectors] = {}, by[kVectors] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (at(v) < vectors) {
      own[v] = from[at(v)];
      by[v]  = __ldg(reinterpret_cast<const float4*>(norm) + at(v));
    }
  float squares = 0;
#pragma unroll
  for (const float4 v : own) squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  squares = warp_reduce_sum(squares);
  if (lane == 0) warp_sums[warp] = squares;
  __syncthreads();  // warp_sums is complete
  const float whole = warp_reduce_sum(lane < kThreads / 32 ? warp_sums[lane] : 0);
  const float scale = rsqrtf(whole / static_cast<float>(width) + kEpsilon);
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (at(v) < vectors)
      reinterpret_cast<uint2*>(y + row * width)[at(v)] = {
          pack_bf16x2(own[v].x * scale * by[v].x, own[v].y * scale * by[v].y),
          pack_bf16x2(own[v].z * scale * by[v].z, own[v].w * scale * by[v].w)};
}

}  // namespace

void normalize(const Routing& p, StreamRef stream) {
  if (p.rows == 0) return;
  norm_kernel<<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p.x.data(), p.norm.data(), p.y.data(),
                                                                      static_cast<int>(p.width));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::fused_norm_router
