// out(t, n) = sx sw sum_k code(t, k) wcode(n, k)      sx = amax(x) / 448
//
// bytes   5 T K for x (2 to look for amax, 3 to quantise), then T K + N K + 2 T N
// flops   2 T N K
// limit   tensor cores, e4m3
// idea    the scale comes from the numbers themselves: no number saturates, but x is read once more first
#include "kernels/gemm/scaled_mm_fp8.h"
#include "kernels/quant/quantize.h"
#include "linear.h"

namespace fathom::lab::fp8_linear {

void current_scaling(const Linear& p, StreamRef stream) {
  const auto q = p.codes_of_tensor(p.scale());
  kernels::tensor_scale(p.x, q, stream);
  kernels::quantize(p.x, q, stream);
  kernels::scaled_mm_fp8(p.codes, q.scale, p.w_of_tensor, p.tensor_scale, p.out, stream);
}

}  // namespace fathom::lab::fp8_linear
