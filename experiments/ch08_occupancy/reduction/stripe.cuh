// A block's stripe: 4096 vectors of four floats, 16 for each thread.
#pragma once

namespace fathom::lab::reduction {

inline constexpr int kThreads = 256;
inline constexpr int kLoads   = 16;                 // of a thread
inline constexpr int kVectors = kThreads * kLoads;  // of a stripe, 64 KiB

__device__ inline float add(float4 v) { return (v.x + v.y) + (v.z + v.w); }

// This thread's part of stripe `stripe` of n floats that begin on 16 bytes. Unrolled and without a bounds
// check, so that the compiler uses all registers of full occupancy for loads in flight.
__device__ inline float stripe_sum(const float* in, int n, int stripe) {
  const float4* vectors = reinterpret_cast<const float4*>(in);
  const int whole = n / 4, first = stripe * kVectors, t = threadIdx.x;
  float sum = 0;
  if (first + kVectors <= whole) {
#pragma unroll
    for (int l = 0; l < kLoads; ++l) sum += add(vectors[first + l * kThreads + t]);
  } else {  // the last one
    for (int at = first + t; at < whole; at += kThreads) sum += add(vectors[at]);
  }
  return sum;
}

// Up to three floats behind the last whole vector.
__device__ inline float rest_sum(const float* in, int n) {
  const int i = n / 4 * 4 + threadIdx.x;
  return i < n ? in[i] : 0;
}

}  // namespace fathom::lab::reduction
