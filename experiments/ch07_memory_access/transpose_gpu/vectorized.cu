// out(j, i) = in(i, j)                       n x n, fp32
//
// bytes   8 n^2    4 n^2 read + 4 n^2 written
// flops   0
// limit   DRAM bandwidth. H200: n = 16384 moves 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    16 bytes an access on all four sides: a thread transposes 4 x 4 floats in its registers, so that
//         accesses to the tile are vectors on both sides. A quarter of the instructions, runs of 256 bytes
#include "cuda/check.h"
#include "tile64.cuh"
#include "transpose.h"

namespace fathom::lab::transpose_gpu {
namespace {

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const float* __restrict__ in, float* __restrict__ out, int n) {
  transpose_tile<kAligned>(in, out, n, blockIdx.y * kTile, blockIdx.x * kTile);
}

}  // namespace

void vectorized(const Transpose& p, StreamRef stream) {
  const int n = static_cast<int>(p.in.extent(0));
  if (n == 0) return;
  const unsigned tiles = blocks_for(n, kTile);
  const auto kernel    = n % 4 == 0 ? transpose_kernel<true> : transpose_kernel<false>;
  kernel<<<dim3(tiles, tiles), kThreads, 0, stream>>>(p.in.data(), p.out.data(), n);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::transpose_gpu
