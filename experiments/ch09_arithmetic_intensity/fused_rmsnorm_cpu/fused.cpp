// sum = x + residual; y = sum * weight / rms(sum)       T x D, fp32
//
// bytes   16 T D   and 24 T D move: lines of sum and y are fetched before they are written
// flops   5 T D
// limit   memory bandwidth
// idea    a row at a time: squares are summed while the row is added up, and scaled while it is in L1
#include "lanes.h"
#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_cpu {

void fused(const RmsNorm& p, Context&) {
  const int64_t tokens = p.x.extent(0), dim = p.x.extent(1);
  const float* weight = p.weight.data();
  for (int64_t t = 0; t < tokens; ++t) {
    const float *x = p.x.data() + t * dim, *residual = p.residual.data() + t * dim;
    float* __restrict__ sum = p.sum.data() + t * dim;
    float* __restrict__ y   = p.y.data() + t * dim;
    const float squares     = sum_of_squares(
            dim,
            [&](int64_t i) {
          const Vector s = hn::Add(hn::LoadU(kLanes, x + i), hn::LoadU(kLanes, residual + i));
          hn::StoreU(s, kLanes, sum + i);
          return s;
        },
            [&](int64_t i) { return sum[i] = x[i] + residual[i]; });
    const float scale = scale_of(squares, dim);
    for (int64_t d = 0; d < dim; ++d) y[d] = sum[d] * scale * weight[d];
  }
}

}  // namespace fathom::lab::fused_rmsnorm_cpu
