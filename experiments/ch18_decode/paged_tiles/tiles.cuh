// Decode attention over tiles of 32 positions, wherever a layout has them. A warp has every fourth tile of a
// sequence and key-value head, and two stages, which bulk copies fill; the warps' results are merged at the
// end. The arithmetic is the engine's (kernels/attention/decode_attention.cuh).
#pragma once

#include "kernels/attention/decode_attention.cuh"
#include "layouts.h"

namespace fathom::lab::paged_tiles {

using kernels::decode::attend_tile, kernels::decode::kDims, kernels::decode::kKeys, kernels::decode::kLog2E,
    kernels::decode::MergedOutput, kernels::decode::OnlineSoftmax;
using Tile = kernels::Bf16KvFragments<kKeys>;

inline constexpr int kWarps = 4, kThreads = 32 * kWarps, kCtasPerSm = 3, kStages = 2;
inline constexpr int kSharedBytes = kWarps * kStages * Tile::kBytes;
inline constexpr int kRowStride =
    kDims + 4;  // floats: lanes 4 g + t, dimension g of head 2 t, use 32 different banks
inline constexpr int kRowBytes = 128;  // of a key or a value

// Without pages: a tile's place follows from its number.
struct Dense {
  const bf16* cache;
  int64_t padded;  // positions

  struct Place {
    int64_t at;  // of the tile's keys
  };
  __device__ Place place(int sequence, int head, int tile) const {
    return {((int64_t{sequence} * kKvHeads + head) * 2 * padded + tile * kKeys) * kDims};
  }
  __device__ void copy(char* to, Place from, int, uint64_t* barrier) const {
    ptx::cp_async_bulk_load(to, cache + from.at, kKeys * kRowBytes, barrier);
    ptx::cp_async_bulk_load(to + kKeys * kRowBytes, cache + from.at + padded * kDims, kKeys * kRowBytes,
                            barrier);
  }
};

// A tile is a part of a page, or some pages.
template <int kPageSize>
struct Paged {
  const bf16* cache;
  const int32_t* pages;  // S x of_sequence
  int of_sequence;

  static constexpr int kPieces = kPageSize < kKeys ? kKeys / kPageSize : 1, kRows = kKeys / kPieces;

  struct Place {
    int page[kPieces];
    int row;  // in the page
  };
  __device__ Place place(int sequence, int, int tile) const {
    Place place;
    const int first = tile * kKeys / kPageSize;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) place.page[i] = pages[int64_t{sequence} * of_sequence + first + i];
    place.row = tile * kKeys % kPageSize;
    return place;
  }
  __device__ void copy(char* to, const Place& from, int head, uint64_t* barrier) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const bf16* const keys =
          cache + ((int64_t{from.page[i]} * kKvHeads + head) * 2 * kPageSize + from.row) * kDims;
      char* const piece = to + i * (kRows * kRowBytes);
      ptx::cp_async_bulk_load(piece, keys, kRows * kRowBytes, barrier);
      ptx::cp_async_bulk_load(piece + kKeys * kRowBytes, keys + kPageSize * kDims, kRows * kRowBytes,
                              barrier);
    }
  }
};

// Grid: (key-value heads, sequences).
template <class Layout>
__global__ void __launch_bounds__(kThreads, kCtasPerSm)
    tiles_kernel(const Layout layout, const bf16* q, const float* sinks, int context, bf16* all_out) {
  extern __shared__ __align__(128) char all_stages[];
  __shared__ uint64_t full[kWarps][kStages];
  __shared__ float outs[kWarps][kernels::decode::kGroup][kRowStride];
  __shared__ float2 max_and_sum[kWarps][kernels::decode::kGroup];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head = blockIdx.x, sequence = blockIdx.y;
  const int tiles = (context + kKeys - 1) / kKeys, count = (tiles - warp + kWarps - 1) / kWarps;

  if (lane == 0)
    for (uint64_t& barrier : full[warp]) ptx::mbarrier_init(&barrier, 1);
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async();  // the copies see the initialised barriers
  __syncwarp();

  // Lane i % 32 looks up the place of the warp's i-th tile, long before it is copied.
  char* const stages           = all_stages + warp * (kStages * Tile::kBytes);
  typename Layout::Place place = {};
  const auto fetch             = [&](int i) {
    if (i % 32 == 0 && i + lane < count) place = layout.place(sequence, head, warp + (i + lane) * kWarps);
    if (lane != i % 32) return;
    uint64_t* const barrier = &full[warp][i % kStages];
    char* const to          = stages + i % kStages * Tile::kBytes;
    ptx::mbarrier_arrive_expect_tx(barrier, Tile::kBytes);
    layout.copy(to, place, head, barrier);
  };
  for (int i = 0; i < min(kStages, count); ++i) fetch(i);

  const int first_head = sequence * kHeads + head * kGroup;
  uint32_t query[4][2];
  Tile::load_query(query, reinterpret_cast<const uint32_t*>(q + int64_t{first_head + lane / 4} * kDims),
                   lane);
  OnlineSoftmax state;
  for (int i = 0; i < count; ++i) {
    char* const stage = stages + i % kStages * Tile::kBytes;
    const int last    = min(kKeys - 1, context - 1 - (warp + i * kWarps) * kKeys);
    ptx::mbarrier_wait(&full[warp][i % kStages], i / kStages & 1);
    if (last < kKeys - 1) {
      Tile::mask_values(stage, 0, last, lane);  // 0 times NaN is NaN
      ptx::fence_proxy_async();                 // orders the stores before the next copy into the stage
      __syncwarp();                             // lanes read what other lanes cleared
    }
    attend_tile<Tile>(state, query, stage, 0, last, kScale * kLog2E);
    __syncwarp();  // all lanes have read the stage
    if (i + kStages < count) fetch(i + kStages);
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int of    = lane % 4 * 2 + h;
    const float sum = column_reduce_sum(state.sum[h]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      outs[warp][of][Tile::dimension(i, 0) + lane / 4] = state.out[i][h];
      outs[warp][of][Tile::dimension(i, 1) + lane / 4] = state.out[i][2 + h];
    }
    if (lane < 4) max_and_sum[warp][of] = {state.max_score[h], sum};
  }
  __syncthreads();  // all warps' results are in shared memory

  // A thread merges four dimensions of a head.
  static_assert(kThreads == kernels::decode::kGroup * kDims / 4);
  const int h = threadIdx.x / (kDims / 4), d = threadIdx.x % (kDims / 4) * 4;
  const float sink = sinks[head * kGroup + h] * kLog2E;
  float row_max    = sink;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) row_max = fmaxf(row_max, max_and_sum[w][h].x);
  MergedOutput row;
#pragma unroll
  for (int w = 0; w < kWarps; ++w)
    row.add(ptx::ex2_approx(max_and_sum[w][h].x - row_max), max_and_sum[w][h].y,
            *reinterpret_cast<const float4*>(&outs[w][h][d]));
  const float rescale = 1 / (row.sum + ptx::ex2_approx(sink - row_max));
  reinterpret_cast<uint2*>(all_out + int64_t{first_head} * kDims)[threadIdx.x] = {
      pack_bf16x2(row.out.x * rescale, row.out.y * rescale),
      pack_bf16x2(row.out.z * rescale, row.out.w * rescale)};
}

template <class Layout>
void launch(const Step& p, const Layout& layout, StreamRef stream) {
  if (p.out.size() == 0) return;
  FATHOM_EXPECT(p.context < (int64_t{1} << 30) && p.sequences() <= 65535,
                "positions and sequences are counted in 31 bits");
  allow_shared_memory_once<tiles_kernel<Layout>>(kSharedBytes);
  tiles_kernel<Layout>
      <<<dim3(kKvHeads, static_cast<unsigned>(p.sequences())), kThreads, kSharedBytes, stream>>>(
          layout, p.q.data(), p.sinks.data(), static_cast<int>(p.context), p.out.data());
  FATHOM_LAUNCHED();
}

template <int kPageSize>
void launch_pages(const Step& p, int layout, View<const int32_t, 2> pages, StreamRef stream) {
  launch(p,
         Paged<kPageSize>{p.cache.data() + layout * p.cache.extent(1), pages.data(),
                          static_cast<int>(pages.extent(1))},
         stream);
}

}  // namespace fathom::lab::paged_tiles
