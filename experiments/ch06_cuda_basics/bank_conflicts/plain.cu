// x(i, j) <- 31/32 x(i, j) + 1/32 x(j, i), 32 times          tiles of 32 x 32, fp32
//
// shared  32 steps x (4 KiB written + 4 KiB read) a tile: 256 KiB
// bytes   8 KiB a tile
// flops   3 x 1024 x 32 steps a tile
// limit   shared memory: 128 bytes a cycle from each multiprocessor, 2048 cycles a tile
// idea    baseline: tile[32][32]. A warp writes a row, 32 words side by side. It reads a column, 32 words
//         from 32 rows, and with 32 words a row they all lie in one bank: 32 cycles instead of 1
#include "cuda/check.h"
#include "mixing.h"

namespace fathom::lab::bank_conflicts {
namespace {

constexpr int kRows    = 8;  // 32 x 8 threads, four rows of the tile each
constexpr int kEach    = kSide / kRows;
constexpr int kThreads = kSide * kRows;

__global__ void __launch_bounds__(kThreads) mix_kernel(const float* in, float* out) {
  __shared__ float tile[2][kSide][kSide];

  const int j = threadIdx.x, i0 = threadIdx.y;
  in += int64_t{blockIdx.x} * kSide * kSide;
  out += int64_t{blockIdx.x} * kSide * kSide;

  float x[kEach];
  for (int e = 0; e < kEach; ++e) x[e] = in[(i0 + e * kRows) * kSide + j];

#pragma unroll 2
  for (int step = 0; step < kSteps; ++step) {
    auto& now = tile[step % 2];
    for (int e = 0; e < kEach; ++e) now[i0 + e * kRows][j] = x[e];
    // The tile is completely written before any of it is read. The barrier also orders the reads of the other
    // tile in the previous step before the writes of the next step.
    __syncthreads();
    for (int e = 0; e < kEach; ++e) x[e] = fmaf(kShare, now[j][i0 + e * kRows], (1 - kShare) * x[e]);
  }

  for (int e = 0; e < kEach; ++e) out[(i0 + e * kRows) * kSide + j] = x[e];
}

}  // namespace

void plain(const Mixing& p, StreamRef stream) {
  const int64_t tiles = p.in.extent(0);
  FATHOM_EXPECT(tiles <= INT32_MAX, "a block for each tile");
  if (tiles == 0) return;
  mix_kernel<<<static_cast<unsigned>(tiles), dim3(kSide, kRows), 0, stream>>>(p.in.data(), p.out.data());
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::bank_conflicts
