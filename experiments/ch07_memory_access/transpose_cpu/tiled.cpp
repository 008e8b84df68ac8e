// out(j, i) = in(i, j)                       n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   0
// limit   memory bandwidth
// idea    16 x 16 tiles: 16 lines of 16 floats on either side. A line is fully used before the next tile
//         evicts it, even where a power of two n maps all 16 to one set of the L1 (the victims stay in L2).
#include <algorithm>

#include "transpose.h"

namespace fathom::lab::transpose_cpu {
namespace {

constexpr int64_t kTile = 16;  // floats in a cache line

inline void copy_tile(const float* in, int64_t rows, int64_t columns, float* out, int64_t n) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) out[j * n + i] = in[i * n + j];
}

}  // namespace

void tiled(const Transpose& p, Context&) {
  const int64_t n = p.in.extent(0);
  const float* in = p.in.data();
  float* out      = p.out.data();
  for (int64_t i0 = 0; i0 < n; i0 += kTile)
    for (int64_t j0 = 0; j0 < n; j0 += kTile) {
      const float* from  = in + i0 * n + j0;
      float* to          = out + j0 * n + i0;
      const int64_t rows = std::min(kTile, n - i0), columns = std::min(kTile, n - j0);
      if (rows == kTile && columns == kTile)
        copy_tile(from, kTile, kTile, to, n);  // constant bounds: unrolled
      else
        copy_tile(from, rows, columns, to, n);
    }
}

}  // namespace fathom::lab::transpose_cpu
