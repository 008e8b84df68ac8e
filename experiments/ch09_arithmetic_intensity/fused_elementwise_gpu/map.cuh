// The functions, and a kernel that maps one of them over an array, 4 floats to a thread.
#pragma once

#include "core/view.h"
#include "cuda/check.h"
#include "cuda/stream.h"

namespace fathom::lab::fused_elementwise_gpu {

// t = min(x, pi - x) lies in [0, pi/2] and has the same sine. pi - x subtracts a float and then the rest of
// pi, because near pi the sine is as small as the rounding error of pi. The odd polynomial is
// fused_elementwise_cpu's: the least relative error that degree 9 allows, a tenth of a rounding. (sinf takes
// any argument and needs twice as many instructions.)
struct Sine {
  __device__ float operator()(float x) const {
    const float t = fminf(x, (0x1.921fb6p+1f - x) + -0x1.777a5cp-24f);
    const float s = t * t;
    float p       = 0x1.5dbdf2p-19f;
    p             = fmaf(p, s, -0x1.9f6ffep-13f);
    p             = fmaf(p, s, 0x1.110ed4p-7f);
    p             = fmaf(p, s, -0x1.55554cp-3f);
    return fmaf(p * s, t, t);
  }
};
struct Root {
  __device__ float operator()(float x) const { return sqrtf(x); }
};
struct RootOfSine {
  __device__ float operator()(float x) const { return Root{}(Sine{}(x)); }
};

inline constexpr int kThreads = 256;

// The last n % 4 elements go to the threads behind those of the vectors.
template <class F>
__global__ void __launch_bounds__(kThreads) map_kernel(const float* from, float* to, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x, vectors = n / 4;
  if (i < vectors) {
    const float4 v                   = reinterpret_cast<const float4*>(from)[i];
    reinterpret_cast<float4*>(to)[i] = {F{}(v.x), F{}(v.y), F{}(v.z), F{}(v.w)};
  } else if (i - vectors < n % 4) {
    to[i + vectors * 3] = F{}(from[i + vectors * 3]);
  }
}

// `to` may be `from`. Arrays begin at multiples of 16 bytes.
template <class F>
void map(const float* from, float* to, int64_t n, StreamRef stream) {
  if (n == 0) return;
  FATHOM_EXPECT(n < (int64_t{1} << 31), "elements are counted in 31 bits");
  FATHOM_EXPECT((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 16 == 0,
                "arrays are moved in vectors of 16 bytes");
  map_kernel<F><<<blocks_for(n / 4 + n % 4, kThreads), kThreads, 0, stream>>>(from, to, static_cast<int>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::fused_elementwise_gpu
