// out = softmax of each row                  R x C, fp32
//
// bytes   8 R C    but a row longer than the caches moves 24 C: read for the maximum, read and written
//         (fetched first) for the exponentials, read and written to be scaled
// flops   22 R C   18 of them for the exponential
// limit   bandwidth of the level that holds a row; the exponentials where that is L1
// idea    the definition: maximum, exponentials and their sum, scale
#include "passes.h"
#include "softmax.h"

namespace fathom::lab::online_softmax_cpu {

void three_pass(const Softmax& p, Context&) {
  const int64_t cols = p.in.extent(1);
  for (int64_t r = 0; r < p.in.extent(0); ++r) {
    const float* in = p.in.data() + r * cols;
    float* out      = p.out.data() + r * cols;
    const float max = maximum(in, cols);
    const float sum = sum_of_exponentials(
        in, cols, max, [&](int64_t i, Vector e, int64_t count) { store(e, out + i, count); });
    const float scale = 1 / sum;
    for (int64_t c = 0; c < cols; ++c) out[c] *= scale;
  }
}

}  // namespace fathom::lab::online_softmax_cpu
