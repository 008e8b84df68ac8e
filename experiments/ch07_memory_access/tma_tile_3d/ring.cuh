// One warp of a block moves tiles through a ring in shared memory. How a tile is loaded is the variant's
// `Loader`:
//   kClears                          the warp zeroes rows behind the end of a sequence
//   prepare(ring)                    by all lanes, before the first load
//   bytes(inside)                    that a load of a tile with so many rows inside of its sequence brings
//   load(to, sequence, first, inside, barrier)    by all lanes
// It is a parameter of the kernel, so that TMA finds the tensor map in it.
#pragma once

#include <algorithm>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "sequences.h"

namespace fathom::lab::tma_tile_3d {

inline constexpr int kThreads   = 32;
inline constexpr int kBlocks    = 2;  // on a multiprocessor
inline constexpr int kRowBytes  = kColumns * static_cast<int>(sizeof(float));
inline constexpr int kTileBytes = kRows * kRowBytes;
inline constexpr int kStages    = 6;
inline constexpr int kAhead     = 4;  // loads in flight; the other stages are being stored
inline constexpr int kRingBytes = kStages * kTileBytes;
static_assert(kRows == 32 && kRowBytes == 32 * sizeof(float4),
              "a lane for each row, or for each vector of a row");

__device__ inline void zero_row(char* row) { reinterpret_cast<float4*>(row)[threadIdx.x] = {}; }

// `tiles` in all, `each` of every sequence of so many tokens.
template <class Loader>
__global__ void __launch_bounds__(kThreads)
    pad_kernel(const __grid_constant__ Loader loader, float* out, int tiles, int each, int tokens) {
  extern __shared__ __align__(128) char ring[];
  __shared__ uint64_t full[kStages];
  if (threadIdx.x == 0)
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
  loader.prepare(ring);
  ptx::fence_proxy_async();  // TMA sees this lane's barriers and zeros
  __syncwarp();              // those of all lanes

  // The block's t-th tile is the (blockIdx.x + t * gridDim.x)-th of all. It lies in stage t % kStages, in
  // that stage's phase t / kStages.
  const int mine    = (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const auto tile   = [&](int t) { return static_cast<int>(blockIdx.x + t * gridDim.x); };
  const auto first  = [&](int t) { return tile(t) % each * kRows; };
  const auto inside = [&](int t) { return min(kRows, tokens - first(t)); };
  const auto load   = [&](int t) {
    uint64_t* barrier = &full[t % kStages];
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(barrier, loader.bytes(inside(t)));
    __syncwarp();  // the barrier expects the bytes before any lane starts a copy
    loader.load(ring + t % kStages * kTileBytes, tile(t) / each, first(t), inside(t), barrier);
  };

  for (int t = 0; t < min(kAhead, mine); ++t) load(t);
  for (int t = 0; t < mine; ++t) {
    char* stage = ring + t % kStages * kTileBytes;
    ptx::mbarrier_wait(&full[t % kStages], t / kStages & 1);  // tile t has arrived, for every lane
    if constexpr (Loader::kClears) {
      for (int r = inside(t); r < kRows; ++r) zero_row(stage + r * kRowBytes);
      ptx::fence_proxy_async();  // the store below, and the next load, come after this lane's zeros
    }
    __syncwarp();  // every lane has waited and has written its zeros
    if (threadIdx.x == 0) {
      ptx::cp_async_bulk_store(out + int64_t{tile(t)} * (kRows * kColumns), stage, kTileBytes);
      ptx::cp_async_bulk_commit_group();
      // The next load overwrites tile t + kAhead - kStages, whose store must have read it: of the later
      // stores, kStages - kAhead may still be reading.
      if (t + kAhead < mine) ptx::cp_async_bulk_wait_group_read<kStages - kAhead>();
    }
    if (t + kAhead < mine) load(t + kAhead);  // lanes wait there for the first one
  }
  // The block must not end, and free its shared memory, before the stores have read it.
  if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group_read<0>();
}

template <class Loader>
void launch(const Loader& loader, const Sequences& p, StreamRef stream) {
  allow_shared_memory_once<pad_kernel<Loader>>(kRingBytes);
  const int64_t each = p.out.extent(1) / kRows, tiles = p.out.extent(0) * each;
  FATHOM_EXPECT(std::max(tiles, p.in.extent(0) * p.in.extent(1)) <= INT32_MAX / 2,
                "the kernel counts tiles and rows in 32 bits");
  const auto grid = static_cast<unsigned>(std::min<int64_t>(tiles, kBlocks * multiprocessors()));
  pad_kernel<<<grid, kThreads, kRingBytes, stream>>>(loader, p.out.data(), static_cast<int>(tiles),
                                                     static_cast<int>(each),
                                                     static_cast<int>(p.in.extent(1)));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::tma_tile_3d
