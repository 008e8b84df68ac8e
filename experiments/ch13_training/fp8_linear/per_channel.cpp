// out(t, n) = sx(t) sw(n) sum_k code(t, k) wcode(n, k)      sx(t) = amax(x(t, :)) / 448
//
// bytes   3 T K for x, then T K + N K + 2 T N
// flops   2 T N K
// limit   tensor cores, e4m3
// idea    a scale for each token and for each output channel. Neither depends on k, so both multiply complete
//         sums, in the epilogue; a token's row is held in registers until its scale is known, and read once
#include "kernels/gemm/scaled_mm_fp8.h"
#include "kernels/quant/quantize.h"
#include "linear.h"

namespace fathom::lab::fp8_linear {

void per_channel(const Linear& p, StreamRef stream) {
  const kernels::RowScaled<fp8_e4m3> q{p.codes, {p.scales.data(), {p.tokens}}};
  kernels::quantize(p.x, q, stream);
  kernels::scaled_mm_fp8(p.codes, q.scales, p.w_of_rows, p.row_scales, p.out, stream);
}

}  // namespace fathom::lab::fp8_linear
