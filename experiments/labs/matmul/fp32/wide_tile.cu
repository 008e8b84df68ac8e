// out = a b^T                 m x n, k deep, fp32
//
// bytes   4 (m k + n k + m n) at least
// flops   2 m n k
// limit   FMA of the CUDA cores. H200: 67 TFLOP/s at 1.98 GHz; 8192: 1.1 TFLOP, 16 ms
// idea    8 x 16 elements a thread: 24 reads of shared memory for 512 multiply-adds, where 8 x 8 need 16 for
//         256. The sums leave room for eight warps on a multiprocessor alone. A warp of its own fetches the
//         tiles, so that the eight meet at no barrier
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/tensor_map.h"
#include "fp32_tile.cuh"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kColumns = 16, kTileN = 256, kThreads = 32 * kWarps;
constexpr int kABytes = kTileM * kRowBytes, kStageBytes = kABytes + kTileN * kRowBytes;
constexpr int kStages = 4, kSharedBytes = kStages * kStageBytes;
// Copies go to the stage of the block before the last one, which even a warp that lags has left.
constexpr int kAhead = kStages - 2;

__global__ void __launch_bounds__(kThreads, 1)
    wide_tile_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* out,
                     int m, int n, int blocks) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[kStages], empty[kStages];
  const int row = blockIdx.y * kTileM, column = blockIdx.x * kTileN;
  const auto copy = [&](int block) {
    const int stage = block % kStages, phase = block / kStages & 1;
    uint8_t* const to = stages + stage * kStageBytes;
    ptx::mbarrier_wait(&empty[stage], phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(&full[stage], kStageBytes);
    ptx::cp_async_bulk_tensor_load(to, &a, row, block * kDepth, &full[stage]);
    ptx::cp_async_bulk_tensor_load(to + kABytes, &b, column, block * kDepth, &full[stage]);
  };
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    for (uint64_t& barrier : empty) ptx::mbarrier_init(&barrier, kWarps);
    ptx::fence_mbarrier_init();
    for (int block = 0; block < min(kAhead, blocks); ++block) copy(block);
  }
  __syncthreads();  // the barriers are there before any thread waits for one

  const ThreadTile at(kColumns);
  float sums[8][kColumns] = {};
  for (int block = 0; block < blocks; ++block) {
    const int stage = block % kStages;
    if (threadIdx.x == 0 && block + kAhead < blocks) copy(block + kAhead);
    __syncwarp();
    ptx::mbarrier_wait(&full[stage], block / kStages & 1);
    const uint8_t* const tile = stages + stage * kStageBytes;
#pragma unroll 1  // a loop that the instruction caches hold
    for (int piece = 0; piece < kPieces; ++piece)
      multiply_piece(piece_of(tile, at.row, piece), piece_of(tile + kABytes, at.column, piece), sums);
    __syncwarp();  // all lanes have read the stage
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[stage]);
  }
  store_sums(out, m, n, row + at.row, column + at.column, sums);
}

}  // namespace

void fp32_wide_tile(const GemmFp32& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  allow_shared_memory_once<wide_tile_kernel>(kSharedBytes);
  const dim3 grid(blocks_for(p.n, kTileN), blocks_for(p.m, kTileM));
  wide_tile_kernel<<<grid, kThreads, kSharedBytes, stream>>>(
      tensor_map(p.a.data(), DType::fp32, p.m, p.k, 4 * p.k, kTileM, kDepth, Swizzle::bytes_128),
      tensor_map(p.b.data(), DType::fp32, p.n, p.k, 4 * p.k, kTileN, kDepth, Swizzle::bytes_128),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(blocks_for(p.k, kDepth)));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
