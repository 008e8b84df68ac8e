// out = a b^T                 m x n, k deep, e4m3; out in bf16
//
// bytes   m k + n k + 2 m n at least
// flops   2 m n k
// limit   tensor cores. H200: 1979 TFLOP/s at 1.83 GHz
// idea    the ops of kernels/gemm/gemm_fp8.h
#include "experiments/labs/matmul/gemm_fp8.h"
#include "kernels/gemm/gemm_fp8.h"

namespace fathom::lab::matmul {

void fp8_per_tensor(const GemmFp8& p, StreamRef stream) {
  if (p.out.size() > 0) kernels::gemm_fp8(p.a, p.b, 1, p.out, stream);
}

void fp8_block_scales(const GemmFp8& p, StreamRef stream) {
  if (p.out.size() > 0) kernels::gemm_fp8_block_scaled(p.a, p.a_scales, p.b, p.b_scales, p.out, stream);
}

}  // namespace fathom::lab::matmul
