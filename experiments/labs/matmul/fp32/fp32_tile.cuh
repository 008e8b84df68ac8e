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

inline constexpr int kDepth = 32, kRowBytes = 128, kPieces = 8, kTileM = 128, kWarps = 8;

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

// 16 bytes of a row of a tile: four of k.
__device__ inline const uint8_t* piece_of(const uint8_t* tile, int row, int piece) {
  return tile + row * kRowBytes + ((piece ^ row % 8) << 4);
}
__device__ inline void load_four(float (&four)[4], const uint8_t* from) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  four[0] = v.x, four[1] = v.y, four[2] = v.z, four[3] = v.w;
}

// Adds four of k. `a` and `b`: the pieces of this thread's first row of each tile.
template <int kColumns>
__device__ inline void multiply_piece(const uint8_t* a, const uint8_t* b, float (&sums)[8][kColumns]) {
  float x[8][4];
#pragma unroll
  for (int u = 0; u < 8; ++u) load_four(x[u], a + u * 8 * kRowBytes);
#pragma unroll
  for (int v = 0; v < kColumns; ++v) {
    float y[4];
    load_four(y, b + v * 8 * kRowBytes);
    // Neighbouring multiply-adds share y[l], and belong to different sums.
#pragma unroll
    for (int l = 0; l < 4; ++l)
#pragma unroll
      for (int u = 0; u < 8; ++u) sums[u][v] = fmaf(x[u][l], y[l], sums[u][v]);
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
