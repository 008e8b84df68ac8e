// out(t, n) = sum_b sx(t, b) sw(n / 128, b) sum_{k in b} code(t, k) wcode(n, k)      b: blocks of 128 of k
//
// bytes   3 T K + 4 T K / 128 for x, then T K + N K + 2 T N
// flops   2 T N K, and 2 T N K / 128 in fp32
// limit   tensor cores, e4m3
// idea    a scale for each 128 numbers of a token, and for 128 x 128 weights. They depend on k: sums of a
// block
//         are scaled and added in fp32 by the CUDA cores, between the products
#include "kernels/gemm/gemm_fp8.h"
#include "kernels/quant/quantize.h"
#include "linear.h"

namespace fathom::lab::fp8_linear {

void block_scales(const Linear& p, StreamRef stream) {
  const int64_t blocks = p.block_scales.extent(1);
  // The product wants the tokens of a block side by side.
  kernels::quantize(
      p.x, kernels::BlockScaled<fp8_e4m3>{p.codes, {p.scales.data(), {p.tokens, blocks}, {1, p.tokens}}},
      stream);
  kernels::gemm_fp8_block_scaled(p.codes, {p.scales.data(), {blocks, p.tokens}}, p.w_of_blocks,
                                 p.block_scales, p.out, stream);
}

}  // namespace fathom::lab::fp8_linear
