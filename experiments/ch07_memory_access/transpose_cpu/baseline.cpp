// out(j, i) = in(i, j)                       n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   0
// limit   memory bandwidth
// idea    baseline: the definition, in the order that writes whole rows. (Reading rows and writing columns
//         was equally slow.) Each load takes 4 bytes of a new line; for n a power of two all those lines fall
//         into the same few cache sets and are evicted before the next column uses them.
#include "transpose.h"

namespace fathom::lab::transpose_cpu {

void baseline(const Transpose& p, Context&) {
  const int64_t n = p.in.extent(0);
  const float* in = p.in.data();
  float* out      = p.out.data();
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < n; ++i) out[j * n + i] = in[i * n + j];
}

}  // namespace fathom::lab::transpose_cpu
