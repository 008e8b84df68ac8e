// out = a b^T                 m x n, k deep, e4m3 with scales of blocks; out in bf16
//
// bytes   m k + n k + 2 m n at least
// flops   2 m n k
// limit   tensor cores. H200: 1979 TFLOP/s at 1.83 GHz
// idea    the tile of the op gemm_fp8_block_scaled, 128 x 192, whose scales lie in the stage of their block:
//         reads of shared memory, hidden by the products, take the place of loads that show L2's latency at
//         each block of k
#include "scales_by_tma.cuh"

namespace fathom::lab::matmul {

void fp8_scales_by_tma(const GemmFp8& p, StreamRef stream) { launch_scales_by_tma<false>(p, stream); }

}  // namespace fathom::lab::matmul
