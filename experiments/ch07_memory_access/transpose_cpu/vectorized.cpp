// out(j, i) = in(i, j)                       n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   0
// limit   memory bandwidth
// idea    8 x 8 blocks are turned in registers, so that a tile costs 32-byte loads and stores instead of one
//         of each for every float, and tiles are tall: a row of the output gets 256 bytes in a row.
#include <algorithm>

#include "transpose.h"
#include "transpose_8x8.h"

namespace fathom::lab::transpose_cpu {
namespace {

constexpr int64_t kRows    = 64;  // of the input: four output lines side by side
constexpr int64_t kColumns = 16;  // one line of each input row

}  // namespace

void vectorized(const Transpose& p, Context&) {
  const int64_t n = p.in.extent(0);
  const float* in = p.in.data();
  float* out      = p.out.data();
  for (int64_t i0 = 0; i0 < n; i0 += kRows)
    for (int64_t j0 = 0; j0 < n; j0 += kColumns)
      transpose_tile(in + i0 * n + j0, n, std::min(kRows, n - i0), std::min(kColumns, n - j0),
                     out + j0 * n + i0, n);
}

}  // namespace fathom::lab::transpose_cpu
