// out(j, i) = in(i, j)                       n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   0
// limit   DRAM bandwidth. H200: n = 16384 moves 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    blocks start in order. Row by row, those in flight cover three or four rows of tiles: they read
//         whole rows of `in` and write runs of at most 1 KiB, each to another place of DRAM. Here they
//         walk down bands of 32 rows of tiles, so that the thousand or so in flight form a square, with
//         runs of 8 KiB on both sides
#include "cuda/check.h"
#include "tile64.cuh"
#include "transpose.h"

namespace fathom::lab::transpose_gpu {
namespace {

constexpr int kBand = 32;  // rows of tiles; H200: some 800 to 1000 blocks are resident

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const float* __restrict__ in, float* __restrict__ out, int n) {
  const int tiles = (n + kTile - 1) / kTile;  // in a row, and in a column
  const int first = blockIdx.x / (kBand * tiles) * kBand;
  const int rows  = min(kBand, tiles - first);
  const int place = blockIdx.x - first * tiles;  // within the band, column by column
  transpose_tile<kAligned>(in, out, n, (first + place % rows) * kTile, place / rows * kTile);
}

}  // namespace

void square_order(const Transpose& p, StreamRef stream) {
  const int n = static_cast<int>(p.in.extent(0));
  if (n == 0) return;
  const unsigned tiles = blocks_for(n, kTile);
  const auto kernel    = n % 4 == 0 ? transpose_kernel<true> : transpose_kernel<false>;
  kernel<<<tiles * tiles, kThreads, 0, stream>>>(p.in.data(), p.out.data(), n);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::transpose_gpu
