// D = A B^T in bf16 with sums in fp32 on Hopper's tensor cores: the product of two activations, or of
// activations with weights that are not packed (kernels/gemm/linear_gpu.h is for packed ones).
//
// bytes   2 (m k + n k + m n)
// flops   2 m n k
// limit   tensor cores; for few rows of A, the bytes of B
//
// a is m x k, b is n x k, d is m x n, without gaps between rows; n and k are multiples of 8, and all pointers
// of 16 bytes. d may be neither a nor b. Needs wgmma (sm_90a). k = 0 is not supported, m = 0 and n = 0 are.
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom::kernels {

void gemm_bf16(View<const bf16, 2> a, View<const bf16, 2> b, View<bf16, 2> d, StreamRef stream);

}  // namespace fathom::kernels
