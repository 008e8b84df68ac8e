// x + table(id), 16 threads a row and four rows in a row a thread, so that eight loads of 16 bytes are under
// way in each.
#pragma once

#include "cuda/check.h"
#include "lookup.h"

namespace fathom::lab::l2_persistence {

constexpr int kThreads   = 256;
constexpr int kVectors   = kWidth / 4;  // of a row
constexpr int kRows      = 4;           // of a thread
constexpr int kBlockRows = kThreads / kVectors * kRows;

__device__ inline float4 operator+(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// Streams: loads and stores of data that is used only once.
template <class Streams>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(const float4* __restrict__ x, const int32_t* __restrict__ id,
                    const float4* __restrict__ table, float4* __restrict__ out, int n) {
  const int first  = (blockIdx.x * (kThreads / kVectors) + threadIdx.x / kVectors) * kRows;
  const int vector = threadIdx.x % kVectors;
  x += vector;
  out += vector;
  table += vector;
  if (first + kRows <= n) {
    const int4 ids        = Streams::load(reinterpret_cast<const int4*>(id + first));
    const int from[kRows] = {ids.x, ids.y, ids.z, ids.w};
    float4 a[kRows], b[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) a[k] = Streams::load(x + (first + k) * kVectors);
#pragma unroll
    for (int k = 0; k < kRows; ++k) b[k] = table[from[k] * kVectors];
#pragma unroll
    for (int k = 0; k < kRows; ++k) Streams::store(out + (first + k) * kVectors, a[k] + b[k]);
  } else {  // the last rows
#pragma unroll 1
    for (int row = first; row < n; ++row)
      Streams::store(out + row * kVectors, Streams::load(x + row * kVectors) + table[id[row] * kVectors]);
  }
}

// Plain loads and stores.
struct Unmarked {
  template <class T>
  __device__ static T load(const T* from) {
    return *from;
  }
  __device__ static void store(float4* to, float4 v) { *to = v; }
};

struct Pointers {
  const float4 *x, *table;
  float4* out;
};

inline Pointers vectors_of(const Lookup& p) {
  return {reinterpret_cast<const float4*>(p.x.data()), reinterpret_cast<const float4*>(p.table.data()),
          reinterpret_cast<float4*>(p.out.data())};
}

}  // namespace fathom::lab::l2_persistence
