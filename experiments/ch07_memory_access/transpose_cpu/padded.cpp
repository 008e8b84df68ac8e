// out(j, i) = in(i, j)                       n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written; without streaming stores 4 n^2 more, because a line that is
//         written through the caches is read from memory first
// flops   0
// limit   memory bandwidth
// idea    a spare line behind each row of the buffer. At 512 bytes a row, the 8 rows that a block writes fall
//         into 8 of the 64 sets of the L1, and to the core's short address comparison they look like the rows
//         being read.
#include <immintrin.h>

#include <algorithm>

#include "stream_row.h"
#include "transpose.h"
#include "transpose_8x8.h"

namespace fathom::lab::transpose_cpu {
namespace {

constexpr int64_t kRows    = 128;  // of the input: 512 bytes of an output row
constexpr int64_t kColumns = 16;   // one line of each input row; the buffer is 9 KiB
constexpr int64_t kStride  = kRows + 16;
static_assert(kColumns * kStride <= Transpose::kBuffer);

}  // namespace

void padded(const Transpose& p, Context&) {
  const int64_t n = p.in.extent(0);
  const float* in = p.in.data();
  float* out      = p.out.data();
  float* buffer   = p.buffer.data();
  for (int64_t i0 = 0; i0 < n; i0 += kRows)
    for (int64_t j0 = 0; j0 < n; j0 += kColumns) {
      const int64_t rows = std::min(kRows, n - i0), columns = std::min(kColumns, n - j0);
      transpose_tile(in + i0 * n + j0, n, rows, columns, buffer, kStride);
      for (int64_t j = 0; j < columns; ++j) stream_row(buffer + j * kStride, rows, out + (j0 + j) * n + i0);
    }
  _mm_sfence();  // orders the streaming stores before later stores of the caller
}

}  // namespace fathom::lab::transpose_cpu
