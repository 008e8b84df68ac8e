// The pieces of a row, and what one thread does to load one.
#pragma once

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "experiments/ch10_pipelining/rms_norm.cuh"
#include "pieces.h"

namespace fathom::lab::completion_tokens {

inline constexpr int kThreads = 512;

// All pieces but the last are equally long, a multiple of 4 numbers; the last ones of a short row are empty.
struct Pieces {
  int width, length;

  __device__ explicit Pieces(int width) : width(width), length((width / 4 + kPieces - 1) / kPieces * 4) {}
  __device__ int first(int piece) const { return piece * length; }
  __device__ int count(int piece) const { return max(min(length, width - first(piece)), 0); }
  __device__ int bytes(int piece) const { return count(piece) * static_cast<int>(sizeof(float)); }
};

// The barrier must expect the bytes.
__device__ inline void load_piece(const Pieces& pieces, int piece, float* row, const float* in,
                                  uint64_t* arrived) {
  const int bytes = pieces.bytes(piece), first = pieces.first(piece);
  if (bytes > 0) ptx::cp_async_bulk_load(row + first, in + first, bytes, arrived);
}

}  // namespace fathom::lab::completion_tokens
