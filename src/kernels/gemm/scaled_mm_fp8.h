// D = A B^T of e4m3 matrices, whose scales lie in GPU memory: the product of a linear layer whose activations
// were quantised a moment ago, without a wait for the scale (torch._scaled_mm, vLLM's cutlass_scaled_mm).
// kernels/gemm/gemm_fp8.h takes a scale that the host knows, and scales of blocks.
//
//   d(i, j) = a_scales(i) b_scales(j) sum_l a(i, l) b(j, l)
//
// bytes   m k + n k + 2 m n + 4 (m + n)
// flops   2 m n k
// limit   tensor cores, twice the rate of bf16; for few rows of A, the bytes of B
//
// Both operands have one scale (views of size 1), or A one for each row and B one for each row (m and n, the
// tokens and the output channels). Other shapes and the tensor cores' 14 bits are those of gemm_fp8().
// b_scales is aligned to 8 bytes. Needs wgmma (sm_90a). k = 0 is not supported, m = 0 and n = 0 are.
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom::kernels {

void scaled_mm_fp8(View<const fp8_e4m3, 2> a, View<const float, 1> a_scales, View<const fp8_e4m3, 2> b,
                   View<const float, 1> b_scales, View<bf16, 2> d, StreamRef stream);

}  // namespace fathom::kernels
