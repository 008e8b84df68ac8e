// out(i, j) = in(i, j) inside of in, 0 around it     fp32, out in whole tiles of 128 x 128
//
// bytes   4 rows columns read + 4 bytes for each element of out written
// flops   0
// limit   DRAM bandwidth. H200: 16632 x 16632 moves 2.21 GB, 0.56 ms at 3.98 TB/s
// idea    two tensor maps describe in and out. A box of 32 x 128 is then one instruction with two
//         coordinates; TMA finds the rows and fills in zeros outside. The ring is that of a 1-D copy: four
//         loads and two stores in flight
#include <algorithm>

#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "pad.h"

namespace fathom::lab::tma_tile {
namespace {

constexpr int kThreads   = 32;  // one thread works, the others idle
constexpr int kBlocks    = 2;   // on a multiprocessor
constexpr int kRows      = 32;
constexpr int kColumns   = Pad::kTile;
constexpr int kBoxBytes  = kRows * kColumns * static_cast<int>(sizeof(float));
constexpr int kStages    = 6;
constexpr int kAhead     = 4;  // loads in flight; the other stages are being stored
constexpr int kRingBytes = kStages * kBoxBytes;
static_assert(Pad::kTile % kRows == 0);

// `boxes` in all, `across` of them side by side.
__global__ void __launch_bounds__(kThreads)
    pad_kernel(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out, int boxes,
               int across) {
  extern __shared__ __align__(128) char ring[];
  __shared__ uint64_t full[kStages];
  if (threadIdx.x != 0) return;

  ptx::prefetch_tensormap(&in);
  ptx::prefetch_tensormap(&out);
  for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
  ptx::fence_proxy_async();  // makes the initialised barriers visible to TMA

  // The block's b-th box is the (blockIdx.x + b * gridDim.x)-th of all, row by row. It lies in stage b %
  // kStages, in that stage's phase b / kStages.
  const int mine    = (boxes - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const auto row    = [&](int b) { return static_cast<int>(blockIdx.x + b * gridDim.x) / across * kRows; };
  const auto column = [&](int b) { return static_cast<int>(blockIdx.x + b * gridDim.x) % across * kColumns; };
  const auto load   = [&](int b) {
    const int stage = b % kStages;
    ptx::mbarrier_arrive_expect_tx(&full[stage], kBoxBytes);  // zeros count too
    ptx::cp_async_bulk_tensor_load(ring + stage * kBoxBytes, &in, row(b), column(b), &full[stage]);
  };

  for (int b = 0; b < min(kAhead, mine); ++b) load(b);
  for (int b = 0; b < mine; ++b) {
    const int stage = b % kStages;
    ptx::mbarrier_wait(&full[stage], b / kStages & 1);  // box b has arrived
    ptx::cp_async_bulk_tensor_store(&out, row(b), column(b), ring + stage * kBoxBytes);
    ptx::cp_async_bulk_commit_group();
    if (b + kAhead < mine) {
      // The next load overwrites box b + kAhead - kStages, whose store must have read it: of the later
      // stores, kStages - kAhead may still be reading.
      ptx::cp_async_bulk_wait_group_read<kStages - kAhead>();
      load(b + kAhead);
    }
  }
  // The block must not end, and free its shared memory, before the stores have read it.
  ptx::cp_async_bulk_wait_group_read<0>();
}

}  // namespace

void tensor_map_copy(const Pad& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  allow_shared_memory_once<pad_kernel>(kRingBytes);
  const int64_t across = p.out.extent(1) / kColumns, boxes = p.out.extent(0) / kRows * across;
  FATHOM_EXPECT(std::max({boxes, p.out.extent(0), p.out.extent(1)}) <= INT32_MAX / 2,
                "the kernel counts in 32 bits");
  const auto map_of = [](auto view) {
    return tensor_map(view.data(), DType::fp32, view.extent(0), view.extent(1), view.stride(0) * 4, kRows,
                      kColumns);
  };
  const auto grid = static_cast<unsigned>(std::min<int64_t>(boxes, kBlocks * multiprocessors()));
  pad_kernel<<<grid, kThreads, kRingBytes, stream>>>(map_of(p.in), map_of(p.out), static_cast<int>(boxes),
                                                     static_cast<int>(across));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::tma_tile
