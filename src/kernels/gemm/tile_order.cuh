// The order in which persistent CTAs walk over the tiles of a product.
#pragma once

#include <cuda_runtime.h>

namespace fathom::kernels {

// Tiles that are in work at the same time should lie in a region of D that is about as high as it is wide, so
// that together they read few rows of A and B. Tiles go down columns of `group` tiles, column after column.
// (CUTLASS: swizzled rasterization; Triton: GROUP_SIZE_M.)
struct TileOrder {
  int rows, columns;  // of tiles
  int group;

  __host__ __device__ int count() const { return rows * columns; }
  __device__ int row(int tile) const {
    const int first = tile / (group * columns) * group;
    return first + tile % (group * columns) % height(first);
  }
  __device__ int column(int tile) const {
    const int first = tile / (group * columns) * group;
    return tile % (group * columns) / height(first);
  }

 private:
  __device__ int height(int first) const { return min(group, rows - first); }
};

}  // namespace fathom::kernels
