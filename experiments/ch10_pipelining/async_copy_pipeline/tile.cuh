// What all variants share: the layout of a stage, which of its vectors a thread copies, and its products.
#pragma once

#include "cuda/check.h"
#include "lora_shrink.h"

namespace fathom::lab::async_copy_pipeline {

inline constexpr int kRank    = LoraShrink::kRank;
inline constexpr int kTokens  = 128;         // of a block
inline constexpr int kThreads = kTokens;     // a thread computes the 16 numbers of a token
inline constexpr int kDepth   = 32;          // of a step: a token's part is 128 bytes, all banks
inline constexpr int kPieces  = kDepth / 4;  // vectors of 16 bytes of a token
inline constexpr int kOfX     = kTokens * kPieces / kThreads;  // vectors of x that a thread copies
inline constexpr int kVectors = kOfX + 1;                      // and one of a
static_assert(kDepth * kRank == 4 * kThreads);

// Piece c of token r lies at c ^ (r % 8), as TMA's 128-byte swizzle has it: threads of a warp, which read the
// same piece of neighbouring tokens, then read from different banks.
struct Stage {
  float x[kTokens][kDepth];
  float a[kDepth][kRank];
};
static_assert(sizeof(Stage) % 1024 == 0, "TMA's swizzle wants boxes that begin at multiples of 1024 bytes");

// What the kernels take.
struct Shape {
  const float *x, *a;
  float* out;
  int tokens, width, steps;

  Shape(const LoraShrink& p)
      : x(p.x.data()),
        a(p.a.data()),
        out(p.out.data()),
        tokens(static_cast<int>(p.x.extent(0))),
        width(static_cast<int>(p.x.extent(1))),
        steps(static_cast<int>(blocks_for(p.x.extent(1), kDepth))) {}

  unsigned blocks() const { return blocks_for(tokens, kTokens); }
};

// Calls copy(i, to, from) for the calling thread's vectors of a step. `from` is null where the matrix has
// ended: zeros belong there.
template <class Copy>
__device__ inline void for_own_vectors(const Shape& s, int step, Stage& stage, Copy copy) {
  // The same piece of every 16th token, so that they have the same swizzle.
  constexpr int kApart = kThreads / kPieces;
  static_assert(kApart % 8 == 0);
  const int row = threadIdx.x / kPieces, piece = threadIdx.x % kPieces;
  const int token = blockIdx.x * kTokens + row, d = step * kDepth + 4 * piece;
  const float* const from = s.x + int64_t{token} * s.width + d;
#pragma unroll
  for (int i = 0; i < kOfX; ++i)
    copy(i, &stage.x[row + i * kApart][4 * (piece ^ row % 8)],
         token + i * kApart < s.tokens && d < s.width ? from + i * kApart * s.width : nullptr);

  const int of_step = threadIdx.x / (kRank / 4), r = threadIdx.x % (kRank / 4) * 4;
  const int row_of_a = step * kDepth + of_step;
  copy(kOfX, &stage.a[of_step][r], row_of_a < s.width ? s.a + row_of_a * kRank + r : nullptr);
}

// sums += the calling thread's token times a, of one step. All lanes read the same vector of a.
__device__ inline void multiply_stage(const Stage& stage, float (&sums)[kRank]) {
  const int row = threadIdx.x;
#pragma unroll 2
  for (int piece = 0; piece < kPieces; ++piece) {
    const float4 v   = *reinterpret_cast<const float4*>(&stage.x[row][4 * (piece ^ row % 8)]);
    const float x4[] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int r = 0; r < kRank; r += 4) {
        const float4 w = *reinterpret_cast<const float4*>(&stage.a[4 * piece + e][r]);
        sums[r]        = fmaf(x4[e], w.x, sums[r]);
        sums[r + 1]    = fmaf(x4[e], w.y, sums[r + 1]);
        sums[r + 2]    = fmaf(x4[e], w.z, sums[r + 2]);
        sums[r + 3]    = fmaf(x4[e], w.w, sums[r + 3]);
      }
  }
}

__device__ inline void store_sums(const Shape& s, const float (&sums)[kRank]) {
  const int token = blockIdx.x * kTokens + threadIdx.x;
  if (token >= s.tokens) return;
#pragma unroll
  for (int r = 0; r < kRank; r += 4)
    *reinterpret_cast<float4*>(s.out + int64_t{token} * kRank + r) = {sums[r], sums[r + 1], sums[r + 2],
                                                                      sums[r + 3]};
}

}  // namespace fathom::lab::async_copy_pipeline
