// A tile of 64 x 64 floats from `in` to its place in `out`, with accesses of 16 bytes everywhere.
//
// Thread (a, b) of 16 x 16 loads the 4 x 4 block at row 4 a, column 4 b, transposes it in registers and
// stores its columns as vectors of row 4 b + c of the transposed tile, whose rows are then written out as
// they are.
//
// Banks: a row of the tile is 16 vectors, and 8 threads are served together. Vector q of row j lies at
// q ^ j / 4. Writing, the 8 have the same q and rows j / 4 that follow each other; reading, the same j and
// vectors q that follow each other: 8 different places modulo 8, all 32 banks, either way.
#pragma once

#include <cuda_runtime.h>

namespace fathom::lab::transpose_gpu {

constexpr int kTile    = 64;
constexpr int kVectors = kTile / 4;  // of a row
constexpr int kThreads = kVectors * kVectors;

// Both extents n. kAligned: n is a multiple of 4, so that rows begin at multiples of 16 bytes and a vector
// lies inside or outside as a whole.
template <bool kAligned>
__device__ void transpose_tile(const float* __restrict__ in, float* __restrict__ out, int n, int i0, int j0) {
  __shared__ float4 tile[kTile][kVectors];
  const int a = threadIdx.x / kVectors, b = threadIdx.x % kVectors;

  float4 row[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int i = i0 + 4 * a + r, j = j0 + 4 * b;
    row[r] = float4{};
    if (i >= n) continue;
    if constexpr (kAligned) {
      if (j < n) row[r] = *reinterpret_cast<const float4*>(in + i * n + j);
    } else {
      if (j + 0 < n) row[r].x = in[i * n + j + 0];
      if (j + 1 < n) row[r].y = in[i * n + j + 1];
      if (j + 2 < n) row[r].z = in[i * n + j + 2];
      if (j + 3 < n) row[r].w = in[i * n + j + 3];
    }
  }
  tile[4 * b + 0][a ^ b] = float4{row[0].x, row[1].x, row[2].x, row[3].x};
  tile[4 * b + 1][a ^ b] = float4{row[0].y, row[1].y, row[2].y, row[3].y};
  tile[4 * b + 2][a ^ b] = float4{row[0].z, row[1].z, row[2].z, row[3].z};
  tile[4 * b + 3][a ^ b] = float4{row[0].w, row[1].w, row[2].w, row[3].w};

  __syncthreads();  // the tile is complete before other threads read its rows

#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int row_of_tile = kVectors * k + a;
    const int j = j0 + row_of_tile, i = i0 + 4 * b;
    const float4 v = tile[row_of_tile][b ^ row_of_tile / 4];
    if (j >= n) continue;
    if constexpr (kAligned) {
      if (i < n) *reinterpret_cast<float4*>(out + j * n + i) = v;
    } else {
      if (i + 0 < n) out[j * n + i + 0] = v.x;
      if (i + 1 < n) out[j * n + i + 1] = v.y;
      if (i + 2 < n) out[j * n + i + 2] = v.z;
      if (i + 3 < n) out[j * n + i + 3] = v.w;
    }
  }
}

}  // namespace fathom::lab::transpose_gpu
