// A block of 32 of k: both tiles lie in shared memory as TMA writes them, rows of 128 bytes with the 128-byte
// swizzle. A thread reads four of k at a time, 16 bytes of each of its rows. No tile is transposed, because
// the four belong to one sum and not to four.
//
// A warp has 64 rows and 4 kColumns columns. Lanes with the same rows differ in bit 0 or 2, lanes with the
// same columns in bit 1, 3 or 4: lane ^ 1 asks for the same word of a, lane ^ 2 for the same of b, and such
// reads of 16 bytes take two cycles of shared memory where others take four.
#pragma once

#include <cstdint>

#include "cuda/ptx.cuh"

namespace fathom::lab::matmul {

inline constexpr int kDepth = 32, kRowBytes = 128, kTileM = 128, kWarps = 8;

// Of the eight warps, 2 x 4. Two neighbours along n interleave their columns, 4 of 8, so that a thread's rows
// of a tile are all the same modulo 8, and with it the swizzle.
struct ThreadTile {
  int row, column;  // the first; the others are each 8 further

  __device__ explicit ThreadTile(int columns) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row    = warp / 4 * 64 + (lane >> 1 & 1 | lane >> 2 & 6);
    column = warp % 4 / 2 * 8 * columns + warp % 2 * 4 + (lane & 1 | lane >> 1 & 2);
  }
};

// sums += 32 of k.
template <int kColumns>
__device__ inline void multiply_block(const uint8_t* a, const uint8_t* b, const ThreadTile& at,
                                      float (&sums)[8][kColumns]) {
  const auto word = [](const uint8_t* tile, int row, int piece) {
    return tile + row * kRowBytes + ((piece ^ row % 8) << 4);
  };
#pragma unroll 1
  for (int piece = 0; piece < 8; ++piece) {
    const uint8_t* const of_a = word(a, at.row, piece);
    const uint8_t* const of_b = word(b, at.column, piece);
    float x[8][4];
#pragma unroll
    for (int u = 0; u < 8; ++u) {
      const float4 four = *reinterpret_cast<const float4*>(of_a + u * 8 * kRowBytes);
      x[u][0] = four.x, x[u][1] = four.y, x[u][2] = four.z, x[u][3] = four.w;
    }
#pragma unroll
    for (int v = 0; v < kColumns; ++v) {
      const float4 four = *reinterpret_cast<const float4*>(of_b + v * 8 * kRowBytes);
      const float y[4]  = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int l = 0; l < 4; ++l)
#pragma unroll
        for (int u = 0; u < 8; ++u) sums[u][v] = fmaf(x[u][l], y[l], sums[u][v]);
    }
  }
}

template <int kColumns>
__device__ inline void store_sums(float* out, int m, int n, int row, int column,
                                  const float (&sums)[8][kColumns]) {
#pragma unroll
  for (int u = 0; u < 8; ++u)
#pragma unroll
    for (int v = 0; v < kColumns; ++v)
      if (const int i = row + 8 * u, j = column + 8 * v; i < m && j < n) out[int64_t{i} * n + j] = sums[u][v];
}

}  // namespace fathom::lab::matmul
