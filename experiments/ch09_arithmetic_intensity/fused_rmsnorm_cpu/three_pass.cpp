// sum = x + residual; y = sum * weight / rms(sum)       T x D, fp32
//
// bytes   16 T D   but 32 T D move: sum is fetched, written, and read in two more passes; y fetched, written
// flops   5 T D    0.3 a byte
// limit   memory bandwidth
// idea    baseline: one pass over the matrix for each operation: add, reduce, scale
#include "lanes.h"
#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_cpu {

void three_pass(const RmsNorm &p, Context &) {
  const int64_t tokens = p.x.extent(0), dim = p.x.extent(1);
  const float *x = p.x.data(), *residual = p.residual.data(), *weight = p.weight.data();
  float *__restrict__ sum = p.sum.data(), *__restrict__ y = p.y.data();

  for (int64_t i = 0; i < tokens * dim; ++i) sum[i] = x[i] + residual[i];

  for (int64_t t = 0; t < tokens; ++t) {
    const float *row = sum + t * dim;
    p.scale(t)       = scale_of(
              sum_of_squares(
                  dim, [&](int64_t i) { return hn::LoadU(kLanes, row + i); }, [&](int64_t i) { return row[i]; }),
              dim);
  }

  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t d = 0; d < dim; ++d) y[t * dim + d] = sum[t * dim + d] * p.scale(t) * weight[d];
}

}  // namespace fathom::lab::fused_rmsnorm_cpu
