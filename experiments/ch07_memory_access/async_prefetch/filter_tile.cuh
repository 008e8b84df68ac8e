// The computation on a tile in shared memory, shared by all variants.
#pragma once

#include "filter.h"

namespace fathom::lab::async_prefetch {

inline constexpr int kTaps    = Filter::kTaps;
inline constexpr int kThreads = 256;
inline constexpr int kBlocks  = 4;              // on a multiprocessor: the taps take half of 64 registers
inline constexpr int kTile    = 2048;           // outputs
inline constexpr int kTileIn  = kTile + kTaps;  // inputs, one too many, so that 16-byte vectors cover them
inline constexpr int kVectors = kTileIn / 4;    // of a tile
// A thread copies this many of them; in the last round few threads copy.
inline constexpr int kVectorsEach = (kVectors + kThreads - 1) / kThreads;
static_assert(kTaps % 4 == 0 && kTile % (4 * kThreads) == 0);

struct Taps {
  float tap[kTaps];
};

__device__ inline Taps load_taps(const float* taps) {
  Taps loaded;
#pragma unroll
  for (int t = 0; t < kTaps; t += 4) {
    const float4 v    = *reinterpret_cast<const float4*>(taps + t);
    loaded.tap[t]     = v.x;
    loaded.tap[t + 1] = v.y;
    loaded.tap[t + 2] = v.z;
    loaded.tap[t + 3] = v.w;
  }
  return loaded;
}

// out[0, count) of a tile whose inputs are `in`, in shared memory. A thread makes four outputs side by side,
// whose 35 inputs it reads as 9 vectors; neighbouring threads read neighbouring vectors, so banks do not
// collide.
__device__ inline void filter_tile(const float* in, const Taps& taps, float* out, int count) {
#pragma unroll 1
  for (int first = 4 * threadIdx.x; first < kTile; first += 4 * kThreads) {
    float sum[4] = {};
#pragma unroll
    for (int v = 0; v < kTaps / 4 + 1; ++v) {
      const float4 x   = *reinterpret_cast<const float4*>(in + first + 4 * v);
      const float x4[] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int o = 0; o < 4; ++o) {
          const int t = 4 * v + e - o;
          if (t >= 0 && t < kTaps) sum[o] += taps.tap[t] * x4[e];
        }
    }
    if (first + 4 <= count) {
      *reinterpret_cast<float4*>(out + first) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    } else {
#pragma unroll
      for (int o = 0; o < 4; ++o)
        if (first + o < count) out[first + o] = sum[o];
    }
  }
}

}  // namespace fathom::lab::async_prefetch
