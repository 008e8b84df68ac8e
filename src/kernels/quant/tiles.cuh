// How a matrix is cut up among threads that each move vectors of 8 neighbours of a row, 16 bytes of bf16, of
// which they have kLoads in flight. Vectors of a warp are neighbours, so that its loads and stores have no
// gaps. `whole` vectors are aligned and inside their rows; others are moved number by number.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"
#include "core/expect.h"
#include "core/view.h"
#include "cuda/check.h"

namespace fathom::kernels {

inline constexpr int kLoads      = 4;
inline constexpr int kVectorSize = 8;

struct Tiles {
  int64_t rows, cols;
  int vectors;  // of a row
  int tiles;    // of a row: what the threads that share it do at once
  bool whole;
};

// The launch: blockDim.x threads share a row, and a block has blockDim.y of them.
struct TiledLaunch {
  Tiles tiles;
  dim3 grid, block;
};

// `one_block`: all tiles of a row are one block's, one after another.
inline TiledLaunch tiled_launch(int64_t rows, int64_t cols, bool aligned, bool one_block) {
  FATHOM_EXPECT(cols <= (int64_t{1} << 33), "a row has at most 2^33 numbers");
  const int64_t vectors = (cols + kVectorSize - 1) / kVectorSize;
  const int64_t wanted  = (vectors + kLoads - 1) / kLoads;
  const int64_t threads = std::min<int64_t>((wanted + 31) / 32 * 32, one_block ? 512 : 256);
  const int64_t tiles   = (vectors + threads * kLoads - 1) / (threads * kLoads);
  // Rows of one warp share no barrier.
  const int64_t together = threads == 32 ? 8 : 1;
  const int64_t blocks   = (rows + together - 1) / together * (one_block ? 1 : tiles);
  FATHOM_EXPECT(blocks < (int64_t{1} << 31), "blocks are counted in 31 bits");
  return {
      {rows, cols, static_cast<int>(vectors), static_cast<int>(tiles), aligned && cols % kVectorSize == 0},
      dim3(static_cast<unsigned>(blocks)),
      dim3(static_cast<unsigned>(threads), static_cast<unsigned>(together))};
}

// What a block has to do. `first` is the thread's first vector of the row; the others follow at intervals of
// blockDim.x.
struct Place {
  int64_t row;
  int first;
};
__device__ inline Place place_of(const Tiles& t) {
  const int rows = t.tiles == 1 ? static_cast<int>(blockIdx.x) : static_cast<int>(blockIdx.x) / t.tiles;
  const int tile = static_cast<int>(blockIdx.x) - rows * t.tiles;
  return {int64_t{rows} * blockDim.y + threadIdx.y,
          tile * static_cast<int>(blockDim.x) * kLoads + static_cast<int>(threadIdx.x)};
}

template <class T>
bool aligned_to(const T* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) == 0;
}

// The place in a row, in bytes, of the word of a thread's vector k.
template <class Word>
__device__ inline int64_t word_begin(int first, int k) {
  return int64_t{first + k * static_cast<int>(blockDim.x)} * static_cast<int64_t>(sizeof(Word));
}

// A word as 4 bytes each, of which those from `bytes` on are not there. Loops are not unrolled: code is
// short, and takes no registers from the way that matters.
template <class Word>
__device__ inline Word load_bytes(const uint8_t* from, int64_t bytes) {
  constexpr int kParts = sizeof(Word) / 4;
  uint32_t parts[kParts];
#pragma unroll
  for (int p = 0; p < kParts; ++p) {
    parts[p] = 0;
#pragma unroll 1
    for (int b = 0; b < 4 && p * 4 + b < bytes; ++b) parts[p] |= uint32_t{from[p * 4 + b]} << 8 * b;
  }
  if constexpr (kParts == 4)
    return {parts[0], parts[1], parts[2], parts[3]};
  else if constexpr (kParts == 2)
    return {parts[0], parts[1]};
  else
    return parts[0];
}
__device__ inline void store_bytes(uint8_t* to, int64_t bytes, uint32_t part) {
#pragma unroll 1
  for (int b = 0; b < 4 && b < bytes; ++b) to[b] = static_cast<uint8_t>(part >> 8 * b);
}
__device__ inline void store_bytes(uint8_t* to, int64_t bytes, uint2 word) {
  store_bytes(to, bytes, word.x);
  store_bytes(to + 4, bytes - 4, word.y);
}
__device__ inline void store_bytes(uint8_t* to, int64_t bytes, uint4 word) {
  store_bytes(to, bytes, uint2{word.x, word.y});
  store_bytes(to + 8, bytes - 8, uint2{word.z, word.w});
}

// A thread's words of a row of `bytes` bytes that begins at `row`, for its vectors from `first` on. Bytes
// beyond the row are 0.
template <class Word>
__device__ inline void load_words(const uint8_t* row, int64_t bytes, int first, bool whole,
                                  Word (&words)[kLoads]) {
  if (whole) {
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const int64_t begin = word_begin<Word>(first, k);
      words[k]            = begin < bytes ? __ldcs(reinterpret_cast<const Word*>(row + begin)) : Word{};
    }
  } else {
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const int64_t begin = word_begin<Word>(first, k);
      words[k]            = load_bytes<Word>(row + begin, bytes - begin);
    }
  }
}

template <class Word>
__device__ inline void store_word(uint8_t* row, int64_t bytes, int first, int k, bool whole, Word word) {
  const int64_t begin = word_begin<Word>(first, k);
  if (!whole)
    store_bytes(row + begin, bytes - begin, word);
  else if (begin < bytes)
    *reinterpret_cast<Word*>(row + begin) = word;
}

}  // namespace fathom::kernels
