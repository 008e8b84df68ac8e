// out = a b^T                 m x n, k deep, fp32
//
// bytes   4 (m k + n k + m n) at least
// flops   2 m n k
// limit   FMA of the CUDA cores. H200: 67 TFLOP/s at 1.98 GHz; 8192: 1.1 TFLOP, 16 ms
// idea    TMA fetches the tiles and swizzles them. No thread loads, transposes or stores a tile: threads read
//         16 bytes along k, without bank conflicts
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/tensor_map.h"
#include "fp32_tile.cuh"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

constexpr int kColumns = 8, kTileN = 128, kThreads = 32 * kWarps;
constexpr int kABytes = kTileM * kRowBytes, kStageBytes = kABytes + kTileN * kRowBytes;
constexpr int kStages = 3, kSharedBytes = kStages * kStageBytes;  // two CTAs on a multiprocessor

__global__ void __launch_bounds__(kThreads, 2)
    tma_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* out,
               int m, int n, int blocks) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[kStages];
  const int row = blockIdx.y * kTileM, column = blockIdx.x * kTileN;
  const auto copy = [&](int block) {
    uint8_t* const to       = stages + block % kStages * kStageBytes;
    uint64_t* const barrier = &full[block % kStages];
    ptx::mbarrier_arrive_expect_tx(barrier, kStageBytes);
    ptx::cp_async_bulk_tensor_load(to, &a, row, block * kDepth, barrier);
    ptx::cp_async_bulk_tensor_load(to + kABytes, &b, column, block * kDepth, barrier);
  };
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init();
    for (int block = 0; block < min(kStages - 1, blocks); ++block) copy(block);
  }
  __syncthreads();  // the barriers are there before any thread waits for one

  const ThreadTile at(kColumns);
  float sums[8][kColumns] = {};
  for (int block = 0; block < blocks; ++block) {
    ptx::mbarrier_wait(&full[block % kStages], block / kStages & 1);
    __syncthreads();  // all threads have read the block before, whose stage is filled next
    if (threadIdx.x == 0 && block + kStages - 1 < blocks) copy(block + kStages - 1);
    const uint8_t* const tile = stages + block % kStages * kStageBytes;
#pragma unroll 1  // a loop that the instruction caches hold
    for (int piece = 0; piece < kPieces; ++piece)
      multiply_piece(piece_of(tile, at.row, piece), piece_of(tile + kABytes, at.column, piece), sums);
  }
  store_sums(out, m, n, row + at.row, column + at.column, sums);
}

}  // namespace

void fp32_tma(const GemmFp32& p, StreamRef stream) {
  if (p.out.size() == 0) return;
  allow_shared_memory_once<tma_kernel>(kSharedBytes);
  const dim3 grid(blocks_for(p.n, kTileN), blocks_for(p.m, kTileM));
  tma_kernel<<<grid, kThreads, kSharedBytes, stream>>>(
      tensor_map(p.a.data(), DType::fp32, p.m, p.k, 4 * p.k, kTileM, kDepth, Swizzle::bytes_128),
      tensor_map(p.b.data(), DType::fp32, p.n, p.k, 4 * p.k, kTileN, kDepth, Swizzle::bytes_128),
      p.out.data(), static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(blocks_for(p.k, kDepth)));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::matmul
