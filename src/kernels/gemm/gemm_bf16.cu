// The shapes of tiles in which gemm_bf16 runs the kernel of gemm_sm90.cuh.
#include "kernels/gemm/gemm_bf16.h"

#include <algorithm>

#include "cuda/check.h"
#include "kernels/gemm/gemm_sm90.cuh"

namespace fathom::kernels {
namespace {

// How long the multiprocessors take, in columns of a tile: its columns for each wave of clusters.
template <class S>
int64_t wave_columns(int64_t m, int64_t n) {
  const int64_t clusters = int64_t{blocks_for(m, S::kTileM * S::kCluster)} * blocks_for(n, S::kTileN);
  return int64_t{blocks_for(clusters, multiprocessors() / S::kCluster)} * S::kTileN;
}

}  // namespace

void gemm_bf16(View<const bf16, 2> a, View<const bf16, 2> b, View<bf16, 2> d, StreamRef stream) {
  const int64_t m = a.extent(0), n = b.extent(0), k = a.extent(1);
  FATHOM_EXPECT(b.extent(1) == k && d.extent(0) == m && d.extent(1) == n && k > 0 && n % 8 == 0 && k % 8 == 0,
                "gemm_bf16 wants a (m x k), b (n x k), d (m x n); k > 0; n and k multiples of 8");
  FATHOM_EXPECT(std::max({m, n, k}) <= INT32_MAX / 2, "the kernel counts in 32 bits");
  if (d.size() == 0) return;
  using FewRows  = gemm_sm90::Shape<1, 128, 8, 1>;  // as many bytes of b in flight as fit
  using ManyRows = gemm_sm90::Shape<2, 256, 4, 2>;
  // Divides 2880, and needs no even number of rows of tiles: 4097 x 2880 are three full waves of an H200,
  // where ManyRows has four. Every CTA loads all of its b, so it has to win more than a wave is shorter.
  using FullWaves = gemm_sm90::Shape<2, 240, 4, 1>;
  if (m <= FewRows::kTileM)
    gemm_sm90::launch<FewRows>(a, b, d, {}, stream);
  else if (10 * wave_columns<FullWaves>(m, n) < 9 * wave_columns<ManyRows>(m, n))
    gemm_sm90::launch<FullWaves>(a, b, d, {}, stream);
  else
    gemm_sm90::launch<ManyRows>(a, b, d, {}, stream);
}

}  // namespace fathom::kernels
