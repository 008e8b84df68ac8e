// Brings a block's points and their rim to shared memory. All loads are in flight before the first is stored.
#pragma once

#include "stencil.h"

namespace fathom::lab::shared_tile {

// For a block of kWidth x kRows threads and kWidth x kHeight points, whose corner in the input is (i0, j0).
// Zeros outside the input, for points outside.
template <int kWidth, int kHeight, int kRows>
__device__ inline void load_tile(float (&tile)[kHeight + kRim][kWidth + kRim], const float* __restrict__ in,
                                 int pitch, int i0, int j0) {
  constexpr int kTall   = kHeight + kRim;
  constexpr int kPasses = (kTall + kRows - 1) / kRows;
  const int rows = pitch - i0, columns = pitch - j0;  // of the input that lie in the tile, or more
  const int x = threadIdx.x, y = threadIdx.y;
  const int corner = i0 * pitch + j0;

  // As wide as the block, row after row; then the rim on the right, four in a row.
  float body[kPasses];
  const int own = corner + y * pitch + x, down = kRows * pitch;
#pragma unroll
  for (int l = 0; l < kPasses; ++l) body[l] = y + l * kRows < rows && x < columns ? in[own + l * down] : 0;
  static_assert(kWidth % kRim == 0 && kWidth * kRows >= kTall * kRim,
                "a thread for each number on the right");
  const int a = (y * kWidth + x) / kRim, b = kWidth + x % kRim;
  const float rim = a < min(rows, kTall) && b < columns ? in[corner + a * pitch + b] : 0;

#pragma unroll
  for (int l = 0; l < kPasses; ++l)
    if ((l + 1) * kRows <= kTall || y + l * kRows < kTall) tile[y + l * kRows][x] = body[l];
  if (a < kTall) tile[a][b] = rim;
}

}  // namespace fathom::lab::shared_tile
