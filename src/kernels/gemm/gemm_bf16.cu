// The shapes of tiles in which gemm_bf16 runs the kernel of gemm_sm90.cuh.
#include "kernels/gemm/gemm_bf16.h"

#include <algorithm>

#include "cuda/check.h"
#include "kernels/gemm/gemm_sm90.cuh"

namespace fathom::kernels {

void gemm_bf16(View<const bf16, 2> a, View<const bf16, 2> b, View<bf16, 2> d, StreamRef stream) {
  const int64_t m = a.extent(0), n = b.extent(0), k = a.extent(1);
  FATHOM_EXPECT(b.extent(1) == k && d.extent(0) == m && d.extent(1) == n && k > 0 && n % 8 == 0 && k % 8 == 0,
                "gemm_bf16 wants a (m x k), b (n x k), d (m x n); k > 0; n and k multiples of 8");
  FATHOM_EXPECT(std::max({m, n, k}) <= INT32_MAX / 2, "the kernel counts in 32 bits");
  if (d.size() == 0) return;
  // Few rows: a tile of 64 rows, and as many bytes of b in flight as fit. The rest is measured in
  // experiments/labs/matmul.
  if (m <= 64)
    gemm_sm90::launch<gemm_sm90::Shape<1, 256, 5, 1>>(a, b, d, {}, stream);
  else
    gemm_sm90::launch<gemm_sm90::Shape<2, 256, 4, 2>>(a, b, d, {}, stream);
}

}  // namespace fathom::kernels
