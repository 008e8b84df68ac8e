// sum = x + residual; y = sum * weight / rms(sum)       T x D, fp32
//
// bytes   16 T D   all that moves
// flops   6 T D    the addition twice
// limit   memory bandwidth
// idea    both outputs are written past the caches. The second walk over a row adds x and residual once more:
//         they are in L1, the sum went to memory
#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "lanes.h"
#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_cpu {

void streamed(const RmsNorm& p, Context&) {
  const int64_t lanes = hn::Lanes(kLanes), tokens = p.x.extent(0), dim = p.x.extent(1);
  const float* weight = p.weight.data();
  for (int64_t t = 0; t < tokens; ++t) {
    const float *x = p.x.data() + t * dim, *residual = p.residual.data() + t * dim;
    float *sum = p.sum.data() + t * dim, *y = p.y.data() + t * dim;
    const auto added = [&](int64_t i) {
      return hn::Add(hn::LoadU(kLanes, x + i), hn::LoadU(kLanes, residual + i));
    };
    const float scale =
        scale_of(sum_of_squares(dim, added, [&](int64_t i) { return x[i] + residual[i]; }), dim);

    const auto one = [&](int64_t i) {
      sum[i] = x[i] + residual[i];
      y[i]   = sum[i] * scale * weight[i];
    };
    // Streaming stores need an aligned vector, and rows begin anywhere. sum and y begin alike.
    const auto misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(sum) / sizeof(float)) % lanes;
    int64_t i             = 0;
    for (const int64_t head = std::min(dim, (lanes - misaligned) % lanes); i < head; ++i) one(i);
    for (; i + lanes <= dim; i += lanes) {
      const Vector s = added(i);
      hn::Stream(s, kLanes, sum + i);
      hn::Stream(hn::Mul(hn::Mul(s, hn::Set(kLanes, scale)), hn::LoadU(kLanes, weight + i)), kLanes, y + i);
    }
    for (; i < dim; ++i) one(i);
  }
  hwy::FlushStream();  // orders the streaming stores before later stores of the caller
}

}  // namespace fathom::lab::fused_rmsnorm_cpu
