// D = A B^T of e4m3 matrices on Hopper's tensor cores, with a scale for each tensor or for each block.
//
// bytes   m k + n k + 2 m n, and with scales of blocks 4 m k / 128
// flops   2 m n k
// limit   tensor cores, twice the rate of bf16; for few rows of A, the bytes of B
//
// a is m x k, b is n x k, d is m x n in bf16, without gaps between rows; k is a multiple of 16, n of 8, and
// all pointers of 16 bytes. Needs wgmma (sm_90a). k = 0 is not supported, m = 0 and n = 0 are.
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom::kernels {

// d = scale a b^T; `scale` is that of a times that of b. The tensor cores keep sums to about 14 bits of
// mantissa, whatever k is.
void gemm_fp8(View<const fp8_e4m3, 2> a, View<const fp8_e4m3, 2> b, float scale, View<bf16, 2> d,
              StreamRef stream);

// d(i, j) = sum_l a(i, l) a_scales(l / 128, i) b(j, l) b_scales(j / 128, l / 128), the scales of DeepSeek-V3
// (arXiv 2412.19437, section 3.3). The tensor cores sum 128 products; such sums are scaled and added in fp32.
//   a_scales   ceil(k / 128) x m
//   b_scales   ceil(n / 128) x ceil(k / 128)
// Rows of scales may have gaps between them. (cuBLASLt wants the same, with rows of a multiple of 4 numbers:
// VEC128_32F and BLK128x128_32F.)
void gemm_fp8_block_scaled(View<const fp8_e4m3, 2> a, View<const float, 2> a_scales,
                           View<const fp8_e4m3, 2> b, View<const float, 2> b_scales, View<bf16, 2> d,
                           StreamRef stream);

}  // namespace fathom::kernels
