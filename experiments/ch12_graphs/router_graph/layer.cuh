// The kernels of the layer. Variants differ in who picks the weights of an expert.
#pragma once

#include <cuda_bf16.h>

#include "cuda/check.h"
#include "cuda/warp_reduce.cuh"
#include "layer.h"

namespace fathom::lab::router_graph {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;  // a warp for each row
inline constexpr int kRouterThreads = 32 * kMaxExperts;       // a warp for each expert

__device__ inline float2 pair(uint32_t two) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&two));
}
// Products of 8 elements.
__device__ inline float dot(uint4 w, const bf16* x) {
  const uint4 v  = *reinterpret_cast<const uint4*>(x);
  const float2 a = pair(w.x), b = pair(w.y), c = pair(w.z), d = pair(w.w);
  const float2 e = pair(v.x), f = pair(v.y), g = pair(v.z), h = pair(v.w);
  return a.x * e.x + a.y * e.y + b.x * f.x + b.y * f.y + c.x * g.x + c.y * g.y + d.x * h.x + d.y * h.y;
}
__device__ inline float dot(uint4 w, const float* x) {
  const float4 low = reinterpret_cast<const float4*>(x)[0], high = reinterpret_cast<const float4*>(x)[1];
  const float2 a = pair(w.x), b = pair(w.y), c = pair(w.z), d = pair(w.w);
  return a.x * low.x + a.y * low.y + b.x * low.z + b.y * low.w + c.x * high.x + c.y * high.y + d.x * high.z +
         d.y * high.w;
}
// By a warp; all lanes get it.
template <class T>
__device__ float row_product(const bf16* row, const T* x, int width) {
  float sum = 0;
  for (int v = threadIdx.x % 32; v < width / 8; v += 32)
    sum += dot(reinterpret_cast<const uint4*>(row)[v], x + 8 * v);
  return warp_reduce_sum(sum);
}

// Where the choice goes beside memory.
struct ToMemoryOnly {
  __device__ void choose(int, int) const {}
};
struct ToNodes {
  cudaGraphConditionalHandle handles[kTopK];
  __device__ void choose(int place, int expert) const { cudaGraphSetConditional(handles[place], expert); }
};

// One block.
template <class To>
__global__ void __launch_bounds__(kRouterThreads) router_kernel(Layer p, To to) {
  __shared__ float logits[kMaxExperts];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp < p.experts()) {
    const float logit = row_product(&p.router(warp, 0), p.x.data(), static_cast<int>(p.width)) / 16;
    if (lane == 0) logits[warp] = logit;
  }
  __syncthreads();  // logits are complete
  if (warp > 0) return;
  float own = lane < p.experts() ? logits[lane] : -INFINITY;
  if (lane < p.experts()) p.fired(lane) = 0;
  float first = 0, sum = 0, weight = 0;  // lane s < kTopK keeps the weight of place s
  for (int place = 0; place < kTopK; ++place) {
    float best = own;
    for (int other = 16; other > 0; other /= 2) best = fmaxf(best, __shfl_xor_sync(~0u, best, other));
    const int expert = __ffs(__ballot_sync(~0u, own == best)) - 1;  // the lowest of equal ones
    if (place == 0) first = best;
    const float e = expf(best - first);
    sum += e;
    if (lane == place) weight = e;
    if (lane == expert) own = -INFINITY;
    if (lane == 0) {
      p.chosen(place) = expert;
      to.choose(place, expert);
    }
  }
  if (lane < kTopK) p.weight(lane) = weight / sum;
}

// hidden(place) = relu(up(expert) x)
__device__ inline void up_rows(const Layer& p, int place, int expert) {
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (blockIdx.x == 0 && threadIdx.x == 0) p.fired(expert) = place + 1;
  if (row >= p.width) return;
  const float sum = row_product(&p.up(expert, row, 0), p.x.data(), static_cast<int>(p.width));
  if (threadIdx.x % 32 == 0) p.hidden(place, row) = fmaxf(sum, 0);
}
// partial(place) = down(expert) hidden(place)
__device__ inline void down_rows(const Layer& p, int place, int expert) {
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= p.width) return;
  const float sum = row_product(&p.down(expert, row, 0), &p.hidden(place, 0), static_cast<int>(p.width));
  if (threadIdx.x % 32 == 0) p.partial(place, row) = sum;
}

// One expert, which the launch names.
static __global__ void __launch_bounds__(kThreads) up_kernel(Layer p, int place, int expert) {
  up_rows(p, place, expert);
}
static __global__ void __launch_bounds__(kThreads) down_kernel(Layer p, int place, int expert) {
  down_rows(p, place, expert);
}

static __global__ void __launch_bounds__(kThreads) combine_kernel(Layer p) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= p.width) return;
  float sum = 0;
  for (int place = 0; place < kTopK; ++place) sum += p.weight(place) * p.partial(place, i);
  p.out(i) = sum;
}

template <class To>
void launch_router(const Layer& p, To to, StreamRef stream) {
  router_kernel<<<1, kRouterThreads, 0, stream>>>(p, to);
  FATHOM_LAUNCHED();
}
inline void launch_expert(const Layer& p, int place, int expert, StreamRef stream) {
  up_kernel<<<blocks_for(p.width, kWarps), kThreads, 0, stream>>>(p, place, expert);
  FATHOM_LAUNCHED();
  down_kernel<<<blocks_for(p.width, kWarps), kThreads, 0, stream>>>(p, place, expert);
  FATHOM_LAUNCHED();
}
inline void launch_combine(const Layer& p, StreamRef stream) {
  combine_kernel<<<blocks_for(p.width, kThreads), kThreads, 0, stream>>>(p);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::router_graph
