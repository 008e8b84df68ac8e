// out = softmax of each row                  R x C, fp32
//
// bytes   8 R C    a row longer than the caches moves 16 C: read twice, out fetched and written
// flops   40 R C   every exponential twice
// limit   the exponentials, where a core has less than some 4 bytes of bandwidth for each of their cycles
// idea    one walk finds the maximum and the sum together, correcting the sum when the maximum grows; a
//         second computes the exponentials anew instead of fetching them
#include "running_sum.h"
#include "softmax.h"

namespace fathom::lab::online_softmax_cpu {

void online(const Softmax& p, Context&) {
  const int64_t cols = p.in.extent(1);
  for (int64_t r = 0; r < p.in.extent(0); ++r) {
    const float* in = p.in.data() + r * cols;
    float* out      = p.out.data() + r * cols;
    const auto row  = normalizer(
         in, cols, [](int64_t, float) {}, [](int64_t, Vector, int64_t) {});

    const Vector scale = hn::Set(kLanes, 1 / row.sum);
    sum_of_exponentials(in, cols, row.max, [&](int64_t i, Vector e, int64_t count) {
      store(hn::Mul(e, scale), out + i, count);
    });
  }
}

}  // namespace fathom::lab::online_softmax_cpu
