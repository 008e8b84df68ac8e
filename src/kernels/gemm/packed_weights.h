// Layout of weights for the tensor cores. A lane's part of an A fragment (cuda/ptx.cuh, mma_m16n8k16; the
// same for a warp of wgmma with A in registers) is contiguous. So weights go from memory to registers without
// shared memory, or through shared memory by plain copies without bank conflicts.
//
// A matrix of R rows (outputs) and K columns (inputs), both padded with zeros to multiples of 64, is cut into
// tiles of 64 x 64. The tiles of the same 64 rows follow one another along K. Within a tile:
//
//   bf16   [4 warps][4 steps][32 lanes][16 bytes]  warp w has rows 16 w .. 16 w + 16, step s columns
//          16 s .. 16 s + 16; the 16 bytes are a[0] .. a[3].                                 8 KiB a tile
//   MXFP4  [4 warps][32 lanes][16 bytes]           word s of the 16 bytes has the 8 weights of a[0] .. a[3]
//          in step s, in the bit order of kernels/quant/mxfp4_dequantize.cuh.                2 KiB a tile
//   scales of MXFP4 [4 warps][8 g][4 bytes]        rows g and g + 8 of the warp, and for each the two blocks
//          of 32 columns: (g, first), (g, second), (g + 8, first), (g + 8, second).         128 bytes a tile
//          A scale's byte is its E8M0 code e - `exponent` + 126: the exponent bits of a bf16 number, with the
//          factor 2^126 that mxfp4_dequantize.cuh needs. So e - exponent is 0 to 128.
//
// Rows that are computed as a pair lie in rows g and g + 8 of one lane. RowOrder says which row of the
// checkpoint is packed row p.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace fathom::kernels {

inline constexpr int64_t kTile        = 64;  // rows and columns of a tile; positions of a KV cache page
inline constexpr int64_t kMaxGemvRows = 8;   // of x, in products that are made for few rows
// Weights of so many rows: in such a product each CTA has all of K.
inline constexpr int64_t kFullKRows = 32768;
inline constexpr int64_t kHeadDim   = 64;  // of packed heads: smaller heads are padded with zeros

constexpr int64_t padded(int64_t n) { return (n + kTile - 1) / kTile * kTile; }

enum class RowOrder {
  plain,
  // Heads of Dh <= 64 dimensions, 64 rows each. In group j of 16 rows, row r < 8 is dimension i = 8 j + r of
  // the head's first half, and row r + 8 is dimension i of the second half: RoPE rotates the two as a pair.
  // Where i >= Dh / 2 both are padding.
  rotary_pairs,
  // Units of a SwiGLU layer: the checkpoint has the gate of unit u in row 2 u and its linear part in row
  // 2 u + 1. In group j of 16 rows, row r < 8 is the gate of unit 8 j + r, row r + 8 its linear part.
  gate_pairs,
};

// The checkpoint's row of packed row p, or -1 for padding. `rows` is the checkpoint's number of rows;
// head_dim is for rotary_pairs only.
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

// The checkpoint's column of packed column c, or -1 for padding. Where the columns are those of heads, packed
// ones are [head][64], with dimension i of the first half at i and of the second half at 32 + i. Elsewhere
// head_dim is 0.
FATHOM_HD constexpr int64_t source_column(int64_t c, int64_t columns, int64_t head_dim) {
  int64_t column = c;
  if (head_dim > 0) {
    const int64_t i = c % 32, half = c % 64 / 32;
    column = i < head_dim / 2 ? c / 64 * head_dim + half * (head_dim / 2) + i : -1;
  }
  return column < columns ? column : -1;
}

// How many rows and columns a checkpoint's matrix has when packed. head_dim as for source_row and
// source_column.
constexpr int64_t packed_rows(RowOrder order, int64_t rows, int64_t head_dim) {
  if (order == RowOrder::rotary_pairs) return rows / head_dim * kHeadDim;
  return order == RowOrder::gate_pairs ? 2 * padded(rows / 2) : padded(rows);
}
constexpr int64_t packed_depth(int64_t columns, int64_t head_dim) {
  return head_dim > 0 ? columns / head_dim * kHeadDim : padded(columns);
}

// Pointers are to the device. rows and depth include padding.
struct PackedMatrix {
  const bf16* tiles = nullptr;
  const float* bias = nullptr;  // [rows], in packed order; null: none
  int64_t rows = 0, depth = 0;

  static constexpr int64_t kTileBytes = 8192;
  int64_t bytes() const { return rows / kTile * (depth / kTile) * kTileBytes; }
};

// One such matrix for each expert, one after another.
struct PackedExperts {
  const uint8_t* tiles  = nullptr;
  const uint8_t* scales = nullptr;
  const float* bias     = nullptr;  // [experts, rows], in packed order
  int64_t experts = 0, rows = 0, depth = 0;
  // 2^exponent: epilogues multiply the sums by it before they add the bias.
  float output_scale = 1;

  static constexpr int64_t kTileBytes = 2048, kScaleBytes = 128;
  int64_t tiles_of_one() const { return rows / kTile * (depth / kTile); }
};

}  // namespace fathom::kernels
