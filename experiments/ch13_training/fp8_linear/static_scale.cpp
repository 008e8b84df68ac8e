// out(t, n) = sx sw sum_k code(t, k) wcode(n, k)      sx from a calibration
//
// bytes   3 T K for x, then T K + N K + 2 T N
// flops   2 T N K
// limit   tensor cores, e4m3
// idea    nothing is looked for: one pass over x with a scale that never changes
#include "kernels/gemm/scaled_mm_fp8.h"
#include "kernels/quant/quantize.h"
#include "linear.h"

namespace fathom::lab::fp8_linear {

void static_scale(const Linear& p, StreamRef stream) {
  kernels::quantize(p.x, p.codes_of_tensor(p.calibrated_scale), stream);
  kernels::scaled_mm_fp8(p.codes, p.calibrated_scale, p.w_of_tensor, p.tensor_scale, p.out, stream);
}

}  // namespace fathom::lab::fp8_linear
