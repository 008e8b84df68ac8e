// What the rungs on the CUDA cores share once they work in vectors: 256 threads, tiles of 128 rows and 16
// deep (8 of fp32), transposed in shared memory.
#pragma once

#include <cuda_bf16.h>

#include "cuda/bf16_pack.cuh"

namespace fathom::lab::matmul {

// A thread's part of a tile of `from` (rows x k): 8 numbers of one row. Zeros outside. k is a multiple of 8.
__device__ inline uint4 load_vector(const __nv_bfloat16* from, int first_row, int rows, int k0, int k) {
  const int row = first_row + threadIdx.x / 2, at = k0 + threadIdx.x % 2 * 8;
  return row < rows && at < k ? *reinterpret_cast<const uint4*>(from + int64_t{row} * k + at) : uint4{};
}

template <int kStride>
__device__ inline void store_transposed(uint4 vector, float (*tile)[kStride]) {
  const __nv_bfloat162* const pairs = reinterpret_cast<const __nv_bfloat162*>(&vector);
  const int row = threadIdx.x / 2, at = threadIdx.x % 2 * 8;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair         = __bfloat1622float2(pairs[i]);
    tile[at + 2 * i][row]     = pair.x;
    tile[at + 2 * i + 1][row] = pair.y;
  }
}

// The same of fp32: 4 numbers of one row.
__device__ inline float4 load_vector(const float* from, int first_row, int rows, int k0, int k) {
  const int row = first_row + threadIdx.x / 2, at = k0 + threadIdx.x % 2 * 4;
  return row < rows && at < k ? *reinterpret_cast<const float4*>(from + int64_t{row} * k + at) : float4{};
}
template <int kStride>
__device__ inline void store_transposed(float4 vector, float (*tile)[kStride]) {
  const int row = threadIdx.x / 2, at = threadIdx.x % 2 * 4;
  tile[at][row]     = vector.x;
  tile[at + 1][row] = vector.y;
  tile[at + 2][row] = vector.z;
  tile[at + 3][row] = vector.w;
}

template <class T, int kStride>
__device__ inline void load_transposed(const T* from, int first_row, int rows, int k0, int k,
                                       float (*tile)[kStride]) {
  store_transposed(load_vector(from, first_row, rows, k0, k), tile);
}

// A step of k: 8 x 8 multiply-adds of four vectors. The thread's blocks of 4 x 4 are kRows and kColumns
// apart.
template <int kRows = 64, int kColumns = 64>
__device__ inline void multiply_add(const float* a, const float* b, float (&sums)[8][8]) {
  const auto vector = [](const float* at) { return *reinterpret_cast<const float4*>(at); };
  const float4 a0 = vector(a), a1 = vector(a + kRows), b0 = vector(b), b1 = vector(b + kColumns);
  const float of_a[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
  const float of_b[8] = {b0.x, b0.y, b0.z, b0.w, b1.x, b1.y, b1.z, b1.w};
#pragma unroll
  for (int u = 0; u < 8; ++u)
#pragma unroll
    for (int v = 0; v < 8; ++v) sums[u][v] += of_a[u] * of_b[v];
}

__device__ inline void store_four(bf16* to, const float* from) {
  *reinterpret_cast<uint2*>(to) = {pack_bf16x2(from[0], from[1]), pack_bf16x2(from[2], from[3])};
}
__device__ inline void store_four(float* to, const float* from) {
  *reinterpret_cast<float4*>(to) = {from[0], from[1], from[2], from[3]};
}

// n is a multiple of 4, so four columns are all inside or all outside.
template <int kRows = 64, int kColumns = 64, class T>
__device__ inline void store_blocks(T* out, int m, int n, int row, int column, const float (&sums)[8][8]) {
#pragma unroll
  for (int u = 0; u < 8; ++u)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row + u / 4 * kRows + u % 4, j = column + half * kColumns;
      if (i < m && j < n) store_four(&out[int64_t{i} * n + j], &sums[u][4 * half]);
    }
}

}  // namespace fathom::lab::matmul
