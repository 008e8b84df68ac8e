// out(t, n) = sum_k x(t, k) w(n, k)      bf16, sums in fp32
//
// bytes   2 (T K + N K + T N)
// flops   2 T N K
// limit   tensor cores, at half of e4m3's rate
// idea    baseline: the op gemm_bf16
#include "kernels/gemm/gemm_bf16.h"
#include "linear.h"

namespace fathom::lab::fp8_linear {

void bf16_gemm(const Linear& p, StreamRef stream) { kernels::gemm_bf16(p.x, p.w, p.out, stream); }

}  // namespace fathom::lab::fp8_linear
