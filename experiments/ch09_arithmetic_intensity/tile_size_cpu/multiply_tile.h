// One tile of a matrix product, by register tiles of 8 x 8. Both variants are made of it, so they differ only
// in where a tile of b lies.
#pragma once

#include <algorithm>
#include <cstdint>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"

namespace fathom::lab::tile_size_cpu {

namespace hn = hwy::HWY_NAMESPACE;
using Eight  = hn::FixedTag<float, 8>;
using Vector = hn::Vec<Eight>;
inline constexpr Eight kEight{};
inline constexpr int64_t kRegisters = 8;  // rows and columns: the eight FMAs that two units of latency 4 need

// A block of a matrix: its corner and the distance between its rows.
template <class T>
struct Block {
  T* at;
  int64_t row;
  Block from(int64_t i, int64_t j) const { return {at + i * row + j, row}; }
};

// c (8 x 8) = [c +] a (8 x depth) b (depth x 8), where c stays in registers.
HWY_INLINE void register_tile(Block<const float> a, Block<const float> b, Block<float> c, int64_t depth,
                              bool add) {
  Vector sums[kRegisters];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRegisters; ++i)
    sums[i] = add ? hn::LoadU(kEight, c.at + i * c.row) : hn::Zero(kEight);
  for (int64_t k = 0; k < depth; ++k) {
    const Vector of_b = hn::LoadU(kEight, b.at + k * b.row);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRegisters; ++i)
      sums[i] = hn::MulAdd(hn::Set(kEight, a.at[i * a.row + k]), of_b, sums[i]);
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRegisters; ++i) hn::StoreU(sums[i], kEight, c.at + i * c.row);
}

// c (m x n) = [c +] a (m x depth) b (depth x n); columns 8 j to 8 j + 7 of b begin at b_columns(8 j).
template <class Columns>
void multiply_tile(Block<const float> a, const Columns& b_columns, Block<float> c, int64_t m, int64_t n,
                   int64_t depth, bool add) {
  for (int64_t j = 0; j < n; j += kRegisters) {
    const Block<const float> b = b_columns(j);
    const int64_t columns      = std::min(kRegisters, n - j);
    int64_t i                  = 0;
    if (columns == kRegisters)
      for (; i + kRegisters <= m; i += kRegisters) register_tile(a.from(i, 0), b, c.from(i, j), depth, add);
    for (; i < m; ++i)  // the rim
      for (int64_t q = 0; q < columns; ++q) {
        float sum = add ? c.from(i, j).at[q] : 0;
        for (int64_t k = 0; k < depth; ++k) sum += a.from(i, k).at[0] * b.from(k, q).at[0];
        c.from(i, j).at[q] = sum;
      }
  }
}

}  // namespace fathom::lab::tile_size_cpu
