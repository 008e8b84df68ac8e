// out = a b^T                 m x n, k deep, fp32
//
// bytes   4 (m k + n k + m n) at least, and 8 (m k + n k) to transpose: 0.3 of some 20 ms at 8192
// flops   2 m n k
// limit   FMA of the CUDA cores. H200: 67 TFLOP/s at 1.98 GHz; 8192: 1.1 TFLOP, 16 ms
// idea    a and b are transposed first, so that a read of 16 bytes brings four rows of one k and not four of
//         k. The four registers of such a read lie in both banks in turn, and so do the sums that they are
//         added to: each bank of the register file is asked for one operand a cycle, which is what it has.
//         A sum and its factor of wide_tile share a bank for two of four k. The walk over the sums turns
//         round at each column, so that neighbours share a factor there too
#include <memory>

#include "cuda/check.h"
#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "cuda/tensor_map.h"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

// to[j][i] = from[i][j]; rows of `to` have `stride` numbers.
constexpr int kSide = 32, kRows = 8;
__global__ void __launch_bounds__(kSide* kRows)
    transpose_kernel(const float* from, int rows, int columns, float* to, int stride) {
  __shared__ float tile[kSide][kSide + 1];  // a spare column: no bank conflicts
  const int i0 = blockIdx.y * kSide, j0 = blockIdx.x * kSide, x = threadIdx.x;
  for (int y = threadIdx.y; y < kSide; y += kRows)
    if (i0 + y < rows && j0 + x < columns) tile[y][x] = from[int64_t{i0 + y} * columns + j0 + x];
  __syncthreads();  // the tile is complete
  for (int y = threadIdx.y; y < kSide; y += kRows)
    if (j0 + y < columns && i0 + x < rows) to[int64_t{j0 + y} * stride + i0 + x] = tile[x][y];
}

constexpr int kTileM = 128, kTileN = 256, kDepth = 32, kWarps = 8, kThreads = 32 * kWarps;
constexpr int kABytes = kDepth * kTileM * 4, kStageBytes = kABytes + kDepth * kTileN * 4;
constexpr int kStages = 4, kSharedBytes = kStages * kStageBytes;
// Copies go to the stage of the block before the last one, which even a warp that lags has left.
constexpr int kAhead = kStages - 2;
// A thread has 8 rows and 16 columns, in quads; a warp's lanes make 64 x 64 of them.
constexpr int kQuadsM = 2, kQuadsN = 4, kQuadRows = 32, kQuadColumns = 16;

template <int kQuads, int kStep>
__device__ void load_quads(float (&to)[4 * kQuads], const float* from) {
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    const float4 v = *reinterpret_cast<const float4*>(from + q * kStep);
    to[4 * q] = v.x, to[4 * q + 1] = v.y, to[4 * q + 2] = v.z, to[4 * q + 3] = v.w;
  }
}

// a and b: k x m and k x n.
__global__ void __launch_bounds__(kThreads, 1)
    transposed_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                      float* out, int m, int n, int blocks) {
  extern __shared__ __align__(1024) uint8_t stages[];
  __shared__ uint64_t full[kStages], empty[kStages];
  const int row = blockIdx.y * kTileM, column = blockIdx.x * kTileN;
  const auto copy = [&](int block) {
    const int stage = block % kStages, phase = block / kStages & 1;
    uint8_t* const to = stages + stage * kStageBytes;
    ptx::mbarrier_wait(&empty[stage], phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(&full[stage], kStageBytes);
    ptx::cp_async_bulk_tensor_load(to, &a, block * kDepth, row, &full[stage]);
    ptx::cp_async_bulk_tensor_load(to + kABytes, &b, block * kDepth, column, &full[stage]);
  };
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
    for (uint64_t& barrier : empty) ptx::mbarrier_init(&barrier, kWarps);
    ptx::fence_mbarrier_init();
    for (int block = 0; block < min(kAhead, blocks); ++block) copy(block);
  }
  __syncthreads();  // the barriers are there before any thread waits for one

  // Lanes that differ in bit 0 or 2 have the same rows, in bit 1, 3 or 4 the same columns (fp32_tile.cuh).
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row                  = warp / 4 * 64 + 4 * (lane >> 1 & 1 | lane >> 2 & 6);
  const int first_column               = warp % 4 * 64 + 4 * (lane & 1 | lane >> 1 & 2);
  float sums[4 * kQuadsM][4 * kQuadsN] = {};
  for (int block = 0; block < blocks; ++block) {
    const int stage = block % kStages;
    if (threadIdx.x == 0 && block + kAhead < blocks) copy(block + kAhead);
    __syncwarp();
    ptx::mbarrier_wait(&full[stage], block / kStages & 1);
    const float* const of_a = reinterpret_cast<const float*>(stages + stage * kStageBytes) + first_row;
    const float* const of_b =
        reinterpret_cast<const float*>(stages + stage * kStageBytes + kABytes) + first_column;
#pragma unroll 4  // a loop that the instruction caches hold
    for (int l = 0; l < kDepth; ++l) {
      float x[4 * kQuadsM], y[4 * kQuadsN];
      load_quads<kQuadsM, kQuadRows>(x, of_a + l * kTileM);
      load_quads<kQuadsN, kQuadColumns>(y, of_b + l * kTileN);
#pragma unroll
      for (int v = 0; v < 4 * kQuadsN; ++v)
#pragma unroll
        for (int step = 0; step < 4 * kQuadsM; ++step) {
          const int u = v % 2 == 0 ? step : 4 * kQuadsM - 1 - step;
          sums[u][v]  = fmaf(x[u], y[v], sums[u][v]);
        }
    }
    __syncwarp();  // all lanes have read the stage
    if (lane == 0) ptx::mbarrier_arrive(&empty[stage]);
  }
#pragma unroll
  for (int u = 0; u < 4 * kQuadsM; ++u)
#pragma unroll
    for (int v = 0; v < 4 * kQuadsN; ++v)
      if (const int i = row + first_row + u / 4 * kQuadRows + u % 4,
          j           = column + first_column + v / 4 * kQuadColumns + v % 4;
          i < m && j < n)
        out[int64_t{i} * n + j] = sums[u][v];
}

void transpose(View<const float, 2> from, float* to, StreamRef stream) {
  const int64_t rows = from.extent(0), columns = from.extent(1);
  transpose_kernel<<<dim3(blocks_for(columns, kSide), blocks_for(rows, kSide)), dim3(kSide, kRows), 0,
                     stream>>>(from.data(), static_cast<int>(rows), static_cast<int>(columns), to,
                               static_cast<int>(rows));
  FATHOM_LAUNCHED();
}

}  // namespace

Fp32Call fp32_transposed(const GemmFp32& of, StreamRef) {
  struct Transposed {
    DeviceBuffer<float> a, b;
  };
  const auto to = std::make_shared<const Transposed>(
      Transposed{{*find_device({0}), of.m * of.k}, {*find_device({0}), of.n * of.k}});
  return [to](const GemmFp32& p, StreamRef stream) {
    if (p.out.size() == 0) return;
    transpose(p.a, to->a.data(), stream);
    transpose(p.b, to->b.data(), stream);
    allow_shared_memory_once<transposed_kernel>(kSharedBytes);
    const dim3 grid(blocks_for(p.n, kTileN), blocks_for(p.m, kTileM));
    transposed_kernel<<<grid, kThreads, kSharedBytes, stream>>>(
        tensor_map(to->a.data(), DType::fp32, p.k, p.m, 4 * p.m, kDepth, kTileM),
        tensor_map(to->b.data(), DType::fp32, p.k, p.n, 4 * p.n, kDepth, kTileN), p.out.data(),
        static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(blocks_for(p.k, kDepth)));
    FATHOM_LAUNCHED();
  };
}

}  // namespace fathom::lab::matmul
