// The two walks. Each asks where to read the numbers: the pointer decides whether they come from the device's
// memory or across the link.
#pragma once

#include "cuda/check.h"
#include "normalization.h"

namespace fathom::lab::zero_copy {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps   = kThreads / 32;

// The largest `mine` of a block, to all its threads. Magnitudes as bits: those of floats that are not
// negative are ordered like integers.
__device__ inline float largest_of_block(float mine) {
  __shared__ unsigned largest[kWarps];
  const unsigned of_warp = __reduce_max_sync(~0u, __float_as_uint(mine));
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = of_warp;
  __syncthreads();  // every warp's is there before anyone reads them
  unsigned all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all = max(all, largest[w]);
  return __uint_as_float(all);
}

// Calls each(i, four numbers) or each(i, one number) for this thread's share of n numbers at `from`. Four
// loads are in flight before the first is used: across the link they take more than a microsecond.
template <class Each>
__device__ inline void walk(const float* from, int n, Each each) {
  constexpr int kAhead = 4;
  const int threads = gridDim.x * kThreads, first = blockIdx.x * kThreads + threadIdx.x, fours = n / 4;
  for (int i = first; i < fours; i += kAhead * threads) {
    float4 v[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
      if (i + a * threads < fours) v[a] = reinterpret_cast<const float4*>(from)[i + a * threads];
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
      if (i + a * threads < fours) each(i + a * threads, v[a]);
  }
  if (first < n % 4) each(4 * fours + first, from[4 * fours + first]);
}

__device__ inline float largest(float4 v) {
  return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}
__device__ inline float largest(float v) { return fabsf(v); }
__device__ inline float4 scaled(float4 v, float by) {
  return make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
}
__device__ inline float scaled(float v, float by) { return v * by; }
__device__ inline void store(float* to, int i, float4 v) { reinterpret_cast<float4*>(to)[i] = v; }
__device__ inline void store(float* to, int i, float v) { to[i] = v; }

// The first walk. kKeep: it leaves a copy of what it reads at `copy`.
template <bool kKeep>
__global__ void __launch_bounds__(kThreads)
    largest_kernel(const float* from, float* copy, float* largest_of, int n) {
  float mine = 0;
  walk(from, n, [&](int i, auto v) {
    mine = fmaxf(mine, largest(v));
    if (kKeep) store(copy, i, v);
  });
  const float all = largest_of_block(mine);
  if (threadIdx.x == 0) largest_of[blockIdx.x] = all;
}

// The second.
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const float* from, const float* largest_of, float* out, int n) {
  float mine = 0;
  for (int b = threadIdx.x; b < gridDim.x; b += kThreads) mine = fmaxf(mine, largest_of[b]);
  const float all = largest_of_block(mine);
  const float by  = all > 0 ? 1 / all : 0;
  walk(from, n, [&](int i, auto v) { store(out, i, scaled(v, by)); });
}

// Both, on the same grid. The first reads at `first`, the second at `second`.
template <bool kKeep>
void normalize(const float* first, const float* second, const Normalization& p, StreamRef stream) {
  const int64_t n = p.in.extent(0);
  FATHOM_EXPECT(n <= 1 << 30, "numbers are counted in 32 bits");
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(
      blocks_for(n, 4 * kThreads) < kMostBlocks ? blocks_for(n, 4 * kThreads) : kMostBlocks);
  largest_kernel<kKeep>
      <<<blocks, kThreads, 0, stream>>>(first, p.copy.data(), p.largest_of.data(), static_cast<int>(n));
  FATHOM_LAUNCHED();
  scale_kernel<<<blocks, kThreads, 0, stream>>>(second, p.largest_of.data(), p.out.data(),
                                                static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace
}  // namespace fathom::lab::zero_copy
