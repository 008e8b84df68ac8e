// The product of small row-major blocks in a cache, for experiments in which a product is one step of many:
// register tiles of 6 x 16, and smaller tiles for the remaining rows. (ch09/matmul_cpu is about large
// matrices and packs both sides.)
#pragma once

#include <cstdint>

#define HWY_DISABLE_PCLMUL_AES  // x86-64-v3 promises neither, and Highway would settle for SSSE3
#include "hwy/highway.h"

namespace fathom::lab {

// 12 of 16 vector registers hold sums: enough to hide an FMA's latency twice over.
inline constexpr int64_t kTileRows = 6;
inline constexpr int64_t kPanel    = 16;  // columns: two vectors of AVX2, and a line

// A matrix to multiply by, as panels of kPanel columns: element (k, j) lies at
// data[j / kPanel * panel_stride + k * row_stride + j % kPanel].
struct Panels {
  const float* data    = nullptr;
  int64_t row_stride   = kPanel;
  int64_t panel_stride = 0;
};
// Row-major with rows `stride` apart.
inline Panels rows_of(const float* data, int64_t stride) {
  return {.data = data, .row_stride = stride, .panel_stride = kPanel};
}
// Panel after panel, each `depth` x kPanel: what a product reads straight through.
inline Panels packed_panels(const float* data, int64_t depth) {
  return {.data = data, .row_stride = kPanel, .panel_stride = depth * kPanel};
}

// kRows of c, kPanels of b side by side; `b` begins at a panel.
template <int64_t kRows, int64_t kPanels>
HWY_INLINE void tile_product(int64_t depth, const float* HWY_RESTRICT a, int64_t a_stride, const Panels& b,
                             float* HWY_RESTRICT c, int64_t c_stride, bool add) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Lanes  = hn::CappedTag<float, kPanel>;
  const Lanes d;
  constexpr int64_t kLanes       = hn::MaxLanes(Lanes());
  constexpr int64_t kOfPanel     = kPanel / kLanes;
  constexpr int64_t kVectors     = kPanels * kOfPanel;
  const float* HWY_RESTRICT data = b.data;
  hn::Vec<Lanes> sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v)
      sums[i][v] = add ? hn::LoadU(d, c + i * c_stride + v * kLanes) : hn::Zero(d);
  for (int64_t k = 0; k < depth; ++k) {
    hn::Vec<Lanes> row[kVectors];
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v)
      row[v] = hn::LoadU(d, data + v / kOfPanel * b.panel_stride + v % kOfPanel * kLanes);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRows; ++i) {
      const auto factor = hn::Set(d, a[i * a_stride + k]);
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(factor, row[v], sums[i][v]);
    }
    data += b.row_stride;
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(sums[i][v], d, c + i * c_stride + v * kLanes);
}

// Fewer rows take more panels at once, so that there are always enough sums to hide the latency of a
// multiply-add.
template <int64_t kRows, int64_t kPanels>
inline void row_block(int64_t columns, int64_t depth, const float* a, int64_t a_stride, const Panels& b,
                      float* c, int64_t c_stride, bool add) {
  const auto from = [&](int64_t j) {
    return Panels{b.data + j / kPanel * b.panel_stride, b.row_stride, b.panel_stride};
  };
  int64_t j = 0;
  for (; j + kPanels * kPanel <= columns; j += kPanels * kPanel)
    tile_product<kRows, kPanels>(depth, a, a_stride, from(j), c + j, c_stride, add);
  for (; j < columns; j += kPanel) tile_product<kRows, 1>(depth, a, a_stride, from(j), c + j, c_stride, add);
}

// c = [c +] a b: a is rows x depth, b is depth x columns, columns a multiple of kPanel. A panel of b is
// multiplied with all whole row tiles before the next one, so it should fit in L1 with six rows of a, and a
// in L2.
inline void product(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_stride,
                    const Panels& b, float* c, int64_t c_stride, bool add) {
  const int64_t whole = rows / kTileRows * kTileRows;
  for (int64_t j = 0; j < columns; j += kPanel) {
    const Panels panel{b.data + j / kPanel * b.panel_stride, b.row_stride, b.panel_stride};
    for (int64_t i = 0; i < whole; i += kTileRows)
      tile_product<kTileRows, 1>(depth, a + i * a_stride, a_stride, panel, c + i * c_stride + j, c_stride,
                                 add);
  }
  a += whole * a_stride;
  c += whole * c_stride;
  switch (rows - whole) {
    case 5:
      return row_block<5, 1>(columns, depth, a, a_stride, b, c, c_stride, add);
    case 4:
      return row_block<4, 1>(columns, depth, a, a_stride, b, c, c_stride, add);
    case 3:
      return row_block<3, 2>(columns, depth, a, a_stride, b, c, c_stride, add);
    case 2:
      return row_block<2, 2>(columns, depth, a, a_stride, b, c, c_stride, add);
    case 1:
      return row_block<1, 4>(columns, depth, a, a_stride, b, c, c_stride, add);
    default:
      return;
  }
}

}  // namespace fathom::lab
