// The shapes of tiles in which gemm_fp8 runs the kernel of gemm_sm90.cuh.
#include "kernels/gemm/gemm_fp8.h"

#include <algorithm>

#include "cuda/check.h"
#include "kernels/gemm/gemm_sm90.cuh"

namespace fathom::kernels {
namespace {

using gemm_sm90::E4m3, gemm_sm90::E4m3Blocks, gemm_sm90::Shape;

constexpr int kGroup = 4;  // by trial: 8 and 16 are slower at 8192

void expect_product(View<const fp8_e4m3, 2> a, View<const fp8_e4m3, 2> b, View<bf16, 2> d) {
  const int64_t m = a.extent(0), n = b.extent(0), k = a.extent(1);
  FATHOM_EXPECT(
      b.extent(1) == k && d.extent(0) == m && d.extent(1) == n && k > 0 && n % 8 == 0 && k % 16 == 0,
      "gemm_fp8 wants a (m x k), b (n x k), d (m x n); k > 0, a multiple of 16; n a multiple of 8");
  FATHOM_EXPECT(std::max({m, n, k}) <= INT32_MAX / 2, "the kernel counts in 32 bits");
}

}  // namespace

void gemm_fp8(View<const fp8_e4m3, 2> a, View<const fp8_e4m3, 2> b, float scale, View<bf16, 2> d,
              StreamRef stream) {
  expect_product(a, b, d);
  if (d.size() > 0) gemm_sm90::launch<Shape<2, 256, 4, 2, E4m3>>(a, b, d, {scale}, stream, kGroup);
}

void gemm_fp8_block_scaled(View<const fp8_e4m3, 2> a, View<const float, 2> a_scales,
                           View<const fp8_e4m3, 2> b, View<const float, 2> b_scales, View<bf16, 2> d,
                           StreamRef stream) {
  expect_product(a, b, d);
  const int64_t m = a.extent(0), blocks_n = blocks_for(b.extent(0), 128),
                blocks_k = blocks_for(a.extent(1), 128);
  FATHOM_EXPECT(a_scales.extent(0) == blocks_k && a_scales.extent(1) == m && b_scales.extent(0) == blocks_n &&
                    b_scales.extent(1) == blocks_k && a_scales.stride(1) == 1 && b_scales.stride(1) == 1,
                "gemm_fp8_block_scaled wants scales (k / 128 x m) for a, (n / 128 x k / 128) for b");
  FATHOM_EXPECT(std::max(a_scales.stride(0) * blocks_k, b_scales.stride(0) * blocks_n) <= INT32_MAX,
                "the kernel counts scales in 32 bits");
  if (d.size() > 0)
    gemm_sm90::launch<Shape<2, 192, 4, 2, E4m3Blocks>>(a, b, d, {a_scales, b_scales, static_cast<int>(m)},
                                                       stream);
}

}  // namespace fathom::kernels
