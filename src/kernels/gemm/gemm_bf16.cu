// The shapes of tiles in which gemm_bf16 runs the kernel of gemm_sm90.cuh.
#include "kernels/gemm/gemm_bf16.h"

#include <algorithm>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/tensor_map.h"
#include "kernels/gemm/gemm_sm90.cuh"

namespace fathom::kernels {
namespace {

template <class S>
void launch(View<const bf16, 2> a, View<const bf16, 2> b, View<bf16, 2> d, StreamRef stream) {
  const auto map_of = [](const void* data, int64_t rows, int64_t columns, int box_rows) {
    return tensor_map(data, DType::bf16, rows, columns, 2 * columns, box_rows, 64, Swizzle::bytes_128);
  };
  const int64_t m = a.extent(0), n = b.extent(0), k = a.extent(1);
  const auto clusters_m = static_cast<int>(blocks_for(m, S::kTileM * S::kCluster));
  const TileOrder order{clusters_m, static_cast<int>(blocks_for(n, S::kTileN)), 16 / S::kCluster};
  const int clusters = std::min(order.count(), multiprocessors() / S::kCluster);
  allow_shared_memory_once<gemm_sm90::gemm_kernel<S>>(S::kSharedBytes);
  launch_with_pdl(gemm_sm90::gemm_kernel<S>, dim3(static_cast<unsigned>(clusters * S::kCluster)),
                  dim3(S::kThreads), S::kSharedBytes, S::kCluster, stream, map_of(a.data(), m, k, S::kTileM),
                  map_of(b.data(), n, k, S::kTileN / S::kCluster), map_of(d.data(), m, n, 64),
                  static_cast<int>(blocks_for(k, S::kTileK)), order);
}

}  // namespace

void gemm_bf16(View<const bf16, 2> a, View<const bf16, 2> b, View<bf16, 2> d, StreamRef stream) {
  const int64_t m = a.extent(0), n = b.extent(0), k = a.extent(1);
  FATHOM_EXPECT(b.extent(1) == k && d.extent(0) == m && d.extent(1) == n && k > 0 && n % 8 == 0 && k % 8 == 0,
                "gemm_bf16 wants a (m x k), b (n x k), d (m x n); k > 0; n and k multiples of 8");
  FATHOM_EXPECT(std::max({m, n, k}) <= INT32_MAX / 2, "the kernel counts in 32 bits");
  if (d.size() == 0) return;
  // Few rows: a tile of 64 rows, and as many bytes of b in flight as fit. The rest is measured in
  // experiments/labs/matmul.
  if (m <= 64)
    launch<gemm_sm90::Shape<1, 256, 5, 1>>(a, b, d, stream);
  else
    launch<gemm_sm90::Shape<2, 256, 4, 2>>(a, b, d, stream);
}

}  // namespace fathom::kernels
