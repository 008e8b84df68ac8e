// out = a b^T                 m x n, k deep, fp32 multiplied as tf32
//
// bytes   4 (m k + n k + m n) at least
// flops   2 m n k
// limit   tensor cores. H200: 494 TFLOP/s at 1.83 GHz
// idea    the kernel of gemm_bf16. A block of 128 bytes of k is 32 numbers, an instruction takes 8 of
//         them; rows of a box of out are 32 numbers
#include "cluster.h"
#include "kernels/gemm/gemm_sm90.cuh"

namespace fathom::lab::matmul {

void tf32_cluster(const GemmTf32& p, StreamRef stream) {
  using Shape = kernels::gemm_sm90::Shape<2, 256, 4, 2, kernels::gemm_sm90::Tf32>;
  if (p.out.size() > 0) kernels::gemm_sm90::launch<Shape>(p.a, p.b, p.out, {}, stream);
}

}  // namespace fathom::lab::matmul
