// out(i) = sum_t tap(t) in(i + t)            n outputs, 32 taps, fp32
//
// bytes   8 n    4 n read + 4 n written; neighbouring tiles share 31 inputs
// flops   64 n
// limit   DRAM bandwidth. H200: n = 2^27 moves 1.07 GB, 0.27 ms at the 3.98 TB/s of a copy
// idea    a block walks over tiles. Before it computes one it starts the copies of the next (cp.async), which
//         use no registers and do not block, so that memory is busy while the block computes
#include <algorithm>

#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "filter_tile.cuh"

namespace fathom::lab::async_prefetch {
namespace {

constexpr int kStages = 2;

__global__ void __launch_bounds__(kThreads, kBlocks)
    pipeline_kernel(const float* in, int size, const float* tap, float* out, int n, int tiles) {
  __shared__ alignas(16) float tile[kStages][kTileIn];

  const Taps taps = load_taps(tap);
  // Starts the copies of a tile. Commits a group even without a tile, so that groups count tiles.
  const auto fetch = [&](int which, int stage) {
    const float* const from = in + which * kTile;
    const int left          = size - which * kTile;
    if (which < tiles && left >= kTileIn) {
#pragma unroll
      for (int u = 0; u < kVectorsEach; ++u)
        if (const int i = 4 * (u * kThreads + threadIdx.x); i < kTileIn)
          ptx::cp_async_cg(&tile[stage][i], from + i);
    } else if (which < tiles) {  // zeros past the end
#pragma unroll 1
      for (int i = 4 * threadIdx.x; i < kTileIn; i += 4 * kThreads)
        ptx::cp_async_cg(&tile[stage][i], i < left ? from + i : in, 4 * min(max(left - i, 0), 4));
    }
    ptx::cp_async_commit_group();
  };

  const int step = gridDim.x;
  for (int s = 0; s < kStages - 1; ++s) fetch(blockIdx.x + s * step, s);

  int stage = 0;
  for (int which = blockIdx.x; which < tiles; which += step) {
    ptx::cp_async_wait_group<kStages - 2>();  // this thread's part of the tile has arrived
    // All parts have arrived, and all threads have read the previous tile, whose stage is filled next.
    __syncthreads();
    const int free = stage == 0 ? kStages - 1 : stage - 1;
    fetch(which + (kStages - 1) * step, free);

    const int first = which * kTile;
    filter_tile(tile[stage], taps, out + first, n - first);
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
}

}  // namespace

void double_buffered(const Filter& p, StreamRef stream) {
  FATHOM_EXPECT(p.in.size() <= INT32_MAX / 2, "the kernel counts in 32 bits");
  if (p.out.size() == 0) return;
  const unsigned tiles = blocks_for(p.out.size(), kTile);
  const unsigned grid  = std::min<unsigned>(tiles, kBlocks * multiprocessors());
  pipeline_kernel<<<grid, kThreads, 0, stream>>>(p.in.data(), static_cast<int>(p.in.size()), p.taps.data(),
                                                 p.out.data(), static_cast<int>(p.out.size()),
                                                 static_cast<int>(tiles));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::async_prefetch
