// out = a b^T                 m x n, k deep, e4m3 with scales of blocks; out in bf16
//
// bytes   m k + n k + 2 m n at least
// flops   2 m n k
// limit   tensor cores. H200: 1979 TFLOP/s at 1.83 GHz
// idea    sums in fp32 beside those in the tensor cores. The tile of 128 x 256 is kept, so a thread has
//         128 sums, and registers for 64 partial ones: a warpgroup multiplies 64 x 128, adds, and
//         multiplies the next 64 x 128 of the same block of k
#include "experiments/labs/matmul/gemm_fp8.h"
#include "kernels/gemm/gemm_sm90.cuh"

namespace fathom::lab::matmul {

void fp8_two_parts(const GemmFp8& p, StreamRef stream) {
  using namespace kernels::gemm_sm90;
  if (p.out.size() > 0)
    launch<Shape<2, 256, 4, 2, E4m3Blocks, 128>>(p.a, p.b, p.out,
                                                 {p.a_scales, p.b_scales, static_cast<int>(p.m)}, stream);
}

}  // namespace fathom::lab::matmul
