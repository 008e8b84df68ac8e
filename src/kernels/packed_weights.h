// Weights as the tensor cores' registers want them: a lane's part of an A fragment (core/ptx.cuh,
// mma_16x8x16; the same for a warp of wgmma with A in registers) is contiguous, so that weights go from
// memory to registers without shared memory, or through it by plain copies without bank conflicts.
//
// A matrix of R rows (outputs) and K columns (inputs), both padded with zeros to multiples of 64, is cut into
// tiles of 64 x 64, those of 64 rows one after another along K. Within a tile:
//
//   bf16   [4 warps][4 steps][32 lanes][16 bytes]  warp w has rows 16 w .. 16 w + 16, step s columns
//          16 s .. 16 s + 16; the 16 bytes are a[0] .. a[3].                                 8 KiB a tile
//   MXFP4  [4 warps][32 lanes][16 bytes]           word s of the 16 bytes are the 8 weights of a[0] .. a[3]
//          in step s, in the order of bits of kernels/mxfp4_fragment.cuh.                    2 KiB a tile
//          scales [4 warps][8 g][4 bytes]          rows g and g + 8 of the warp, for each the two blocks of
//          32 columns: (g, first), (g, second), (g + 8, first), (g + 8, second).         128 bytes a tile
//          A scale's byte is its E8M0 code e less `exponent`, plus 126: bits of a bf16 exponent, with the
//          2^126 that unpacking wants (mxfp4_fragment.cuh). So e - exponent is 0 to 128.
//
// What is computed in pairs lies in rows g and g + 8 of one lane. RowOrder says which row of the checkpoint
// packed row p is.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace fathom::kernels {

inline constexpr int64_t kTile    = 64;  // rows and columns of a tile, positions of a page of the KV cache
inline constexpr int64_t kHeadDim = 64;  // of packed heads: smaller heads are padded with zeros

constexpr int64_t padded(int64_t n) { return (n + kTile - 1) / kTile * kTile; }

enum class RowOrder {
  plain,
  // Heads of Dh <= 64 dimensions, 64 rows each. Row r < 8 of group j (16 rows) is dimension i = 8 j + r of
  // the first half, row r + 8 the same of the second half, whose partner it is in a rotation. Where i >= Dh /
  // 2 both are padding.
  rotary_pairs,
  // Units of a gated layer, whose gate is row 2 u and whose linear part is row 2 u + 1 of the checkpoint: row
  // r < 8 of group j is the gate of unit 8 j + r, row r + 8 its linear part.
  gate_pairs,
};

// The checkpoint's row of packed row p, or -1: padding. `rows` is the checkpoint's number; head_dim for
// rotary_pairs only.
FATHOM_HD constexpr int64_t source_row(RowOrder order, int64_t p, int64_t rows, int64_t head_dim) {
  const int64_t group = p / 16, r = p % 16 % 8, half = p % 16 / 8;
  int64_t row = p;
  if (order == RowOrder::gate_pairs) row = 2 * (8 * group + r) + half;
  if (order == RowOrder::rotary_pairs) {
    const int64_t i = 8 * (group % 4) + r;
    row             = i < head_dim / 2 ? p / 64 * head_dim + half * (head_dim / 2) + i : -1;
  }
  return row < rows ? row : -1;
}

// The checkpoint's column of packed column c, or -1. Heads: columns are those of padded heads [head][64],
// dimension i of the first half at i, of the second half at 32 + i; else head_dim is 0.
FATHOM_HD constexpr int64_t source_column(int64_t c, int64_t columns, int64_t head_dim) {
  int64_t column = c;
  if (head_dim > 0) {
    const int64_t i = c % 32, half = c % 64 / 32;
    column = i < head_dim / 2 ? c / 64 * head_dim + half * (head_dim / 2) + i : -1;
  }
  return column < columns ? column : -1;
}

// Pointers are to the device. rows and depth are padded ones.
struct PackedMatrix {
  const bf16* tiles = nullptr;
  const float* bias = nullptr;  // [rows], in packed order; null: none
  int64_t rows = 0, depth = 0;

  static constexpr int64_t kTileBytes = 8192;
  int64_t bytes() const { return rows / kTile * (depth / kTile) * kTileBytes; }
};

// The same matrix of each expert, one after another.
struct PackedExperts {
  const uint8_t* tiles  = nullptr;
  const uint8_t* scales = nullptr;
  const float* bias     = nullptr;  // [experts, rows], in packed order
  int64_t experts = 0, rows = 0, depth = 0;
  float times = 1;  // 2^exponent: products are multiplied by it, before the bias is added

  static constexpr int64_t kTileBytes = 2048, kScaleBytes = 128;
  int64_t tiles_of_one() const { return rows / kTile * (depth / kTile); }
};

}  // namespace fathom::kernels
