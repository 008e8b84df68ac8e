// A warp for each token: its row passes through registers once and goes to the places of its experts.
#pragma once

#include "cuda/check.h"
#include "dispatch.h"

namespace fathom::lab::gather_gpu {

constexpr int kWarp    = 32;
constexpr int kWarps   = 8;  // tokens of a block
constexpr int kThreads = kWarp * kWarps;
constexpr int kVectors = 4;  // in flight in each lane

// Vector: uint4, or a single element where rows do not begin at multiples of 16 bytes. `width` counts
// vectors.
template <class Vector>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(const Vector* __restrict__ in, const int4* __restrict__ place, Vector* __restrict__ out,
                  int tokens, int width) {
  const int token = blockIdx.x * kWarps + threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (token >= tokens) return;
  in += int64_t{token} * width;
  static_assert(kTopK == 4);
  const int4 places = place[token];
  Vector* out0      = out + int64_t{places.x} * width;
  Vector* out1      = out + int64_t{places.y} * width;
  Vector* out2      = out + int64_t{places.z} * width;
  Vector* out3      = out + int64_t{places.w} * width;
  for (int first = lane; first < width; first += kVectors * kWarp) {
    Vector v[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (first + k * kWarp < width) v[k] = in[first + k * kWarp];
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (const int i = first + k * kWarp; i < width) {
        out0[i] = v[k];
        out1[i] = v[k];
        out2[i] = v[k];
        out3[i] = v[k];
      }
  }
}

template <class Vector>
void spread(const Dispatch& p, StreamRef stream) {
  constexpr int kElements = sizeof(Vector) / sizeof(bf16);
  const int tokens        = static_cast<int>(p.in.extent(0));
  spread_kernel<<<blocks_for(tokens, kWarps), kThreads, 0, stream>>>(
      reinterpret_cast<const Vector*>(p.in.data()), reinterpret_cast<const int4*>(p.place.data()),
      reinterpret_cast<Vector*>(p.out.data()), tokens, static_cast<int>(p.in.extent(1)) / kElements);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::gather_gpu
