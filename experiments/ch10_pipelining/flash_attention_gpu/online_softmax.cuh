// The online softmax in registers, for the variants that never store scores. A tile is 64 rows of one query
// head; four warps have 16 rows each and walk over the pages in the tile's reach.
#pragma once

#include <cmath>

#include "attention.h"
#include "cuda/bf16_pack.cuh"
#include "cuda/ptx.cuh"
#include "cuda/warp_reduce.cuh"

namespace fathom::lab::flash_attention_gpu {

inline constexpr int kRows      = 64;                 // of a tile
inline constexpr int kWarpgroup = 128;                // threads of a tile
inline constexpr int kRowBytes  = kHeadDim * 2;       // of a position
inline constexpr int kTileBytes = kPage * kRowBytes;  // of a page's keys, or of its values
inline constexpr int kPageBytes = 2 * kTileBytes;     // keys, then values: adjacent in the cache
inline constexpr float kLog2E   = 1.44269504f;
inline constexpr float kToLog2  = kScale * kLog2E;  // makes a product of q and k a score to base 2

// Positions of a tile's rows, and the pages that hold what they see.
struct Tile {
  int begin, window, first_page, last_page;

  __device__ Tile(const PromptAttention& p, int tile) {
    const int tokens = static_cast<int>(p.q.extent(0));
    begin            = tile * kRows;
    window           = p.window > 0 ? static_cast<int>(p.window) : tokens;
    first_page       = max(0, begin - window + 1) / kPage;
    last_page        = (min(begin + kRows, tokens) - 1) / kPage;
  }
  // Every row sees every position of the page: no mask.
  __device__ bool sees_all_of(int page) const {
    const int key = page * kPage;
    return key + kPage - 1 <= begin && key > begin + kRows - 1 - window;
  }
};

// A lane's part of a warp's 16 rows. Lane 4 g + t has rows g (h = 0) and g + 8 (h = 1), and of every 8
// columns 2 t and 2 t + 1: the accumulators of mma.sync and of wgmma.
struct Rows {
  int row;             // position of row g
  uint32_t q[4][4];    // A fragments of 16 dimensions each
  float scores[8][4];  // of a page, [position / 8][2 h + position % 2]; exponentiate() makes them weights
  float out[8][4];     // [dimension / 8][2 h + dimension % 2]
  float max[2];        // of scores to base 2
  float times[2];      // what a change of `max` multiplies older weights by
  float sum[2];        // of the lane's weights

  // The sink is a row's first score, and has no value.
  __device__ Rows(const PromptAttention& p, int head, int first_row)
      : row(first_row + static_cast<int>(threadIdx.x) % 32 / 4) {
    const int lane = threadIdx.x % 32, tokens = static_cast<int>(p.q.extent(0));
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int r = row + i % 2 * 8, d = i / 4 * 16 + i / 2 % 2 * 8 + lane % 4 * 2;
      q[i / 4][i % 4] = r < tokens ? *reinterpret_cast<const uint32_t*>(&p.q(r, head, d)) : 0;
    }
    max[0] = max[1] = p.sinks(head) * kLog2E;
    sum[0] = sum[1] = lane % 4 == 0 ? 1 : 0;
#pragma unroll
    for (auto& eight : out)
      for (float& x : eight) x = 0;
  }

  // Scores of positions outside a row's reach become -infinity.
  __device__ void mask(int page, int window) {
    const int ahead = row - page * kPage - static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int behind = ahead + e / 2 * 8 - 8 * i - e % 2;
        if (behind < 0 || behind >= window) scores[i][e] = -INFINITY;
      }
  }

  __device__ void raise_max() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float highest = -INFINITY;
#pragma unroll
      for (int i = 0; i < 8; ++i) highest = fmaxf(highest, fmaxf(scores[i][2 * h], scores[i][2 * h + 1]));
      highest  = quad_reduce_max(highest);
      highest  = fmaxf(max[h], highest * kToLog2);
      times[h] = ptx::ex2_approx(max[h] - highest);
      max[h]   = highest;
      sum[h] *= times[h];
    }
  }

  __device__ void rescale_out() {
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[i][e] *= times[e / 2];
  }

  __device__ void exponentiate() {
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        scores[i][e] = ptx::ex2_approx(__fmaf_rn(scores[i][e], kToLog2, -max[e / 2]));
        sum[e / 2] += scores[i][e];
      }
  }

  // Weights of positions 16 k .. 16 k + 16 as an A fragment: they lie in the lane that needs them.
  __device__ void pack_weights(uint32_t (&a)[4], int k) const {
    a[0] = pack_bf16x2(scores[2 * k][0], scores[2 * k][1]);
    a[1] = pack_bf16x2(scores[2 * k][2], scores[2 * k][3]);
    a[2] = pack_bf16x2(scores[2 * k + 1][0], scores[2 * k + 1][1]);
    a[3] = pack_bf16x2(scores[2 * k + 1][2], scores[2 * k + 1][3]);
  }

  __device__ void store(const PromptAttention& p, int head) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[h];
      total       = quad_reduce_sum(total);
      const int r = row + 8 * h;
      if (r >= p.q.extent(0)) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        *reinterpret_cast<uint32_t*>(&p.out(r, head, 8 * i + static_cast<int>(threadIdx.x) % 4 * 2)) =
            pack_bf16x2(out[i][2 * h] / total, out[i][2 * h + 1] / total);
    }
  }
};

}  // namespace fathom::lab::flash_attention_gpu
