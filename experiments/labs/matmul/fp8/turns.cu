// out = a b^T                 m x n, k deep, e4m3 with scales of blocks; out in bf16
//
// bytes   m k + n k + 2 m n at least
// flops   2 m n k
// limit   tensor cores. H200: 1979 TFLOP/s at 1.83 GHz
// idea    scales_by_tma, and the two warpgroups take turns: one multiplies its block of k alone while the
//         other scales and adds (FlashAttention-3's warpgroup scheduling)
#include "scales_by_tma.cuh"

namespace fathom::lab::matmul {

void fp8_turns(const GemmFp8& p, StreamRef stream) { launch_scales_by_tma<true>(p, stream); }

}  // namespace fathom::lab::matmul
