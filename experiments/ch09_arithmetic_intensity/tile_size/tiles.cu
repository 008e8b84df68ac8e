// out(i, j) = sum_k a(i, k) b(k, j)          n x n, fp32
//
// bytes   12 n^2 at least; 8 n^3 / T asked of L2 with tiles of T x T, 8 n^3 asked of L1 without
// flops   2 n^3
// limit   FMA peak. H200: 67 TFLOP/s; n = 4096 is 137 GFLOP, 2.1 ms
// idea    256 threads compute a tile of T x T. Steps of 16 of k of both matrices lie in shared memory, where
//         each number is used T times: T / 4 flops for each byte of L2. A thread has (T / 16)^2 sums, so that
//         its reads of shared memory are used T / 16 times too
#include "cuda/check.h"
#include "matmul.h"

namespace fathom::lab::tile_size {
namespace {

constexpr int kSide = 16, kThreads = kSide * kSide;  // of a block, 16 x 16
constexpr int kDepth = 16;                           // of k in a step

__global__ void __launch_bounds__(kThreads)
    no_tile_kernel(const float* a, const float* b, float* out, int n) {
  const int i = blockIdx.y * kSide + threadIdx.y, j = blockIdx.x * kSide + threadIdx.x;
  if (i >= n || j >= n) return;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[int64_t{i} * n + k] * b[int64_t{k} * n + j];
  out[int64_t{i} * n + j] = sum;
}

// A thread's rows and columns are 16 apart, so that the lanes of a warp read neighbouring words of b, and of
// a one word or two.
template <int kTile>
__global__ void __launch_bounds__(kThreads) tile_kernel(const float* a, const float* b, float* out, int n) {
  constexpr int kEach = kTile / kSide;         // rows, and columns, of a thread
  __shared__ float a_tile[kDepth][kTile + 2];  // transposed; spare columns part the banks of its stores
  __shared__ float b_tile[kDepth][kTile];

  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  float sums[kEach][kEach] = {};
  for (int k0 = 0; k0 < n; k0 += kDepth) {
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
      const int r = u * kSide + y, i = row + r, j = column + u * kSide + x;
      a_tile[x][r]             = i < n && k0 + x < n ? a[int64_t{i} * n + k0 + x] : 0;
      b_tile[y][u * kSide + x] = k0 + y < n && j < n ? b[int64_t{k0 + y} * n + j] : 0;
    }
    __syncthreads();  // both tiles are complete before any thread reads
#pragma unroll 8
    for (int k = 0; k < kDepth; ++k) {
      float of_a[kEach], of_b[kEach];
#pragma unroll
      for (int u = 0; u < kEach; ++u) {
        of_a[u] = a_tile[k][u * kSide + y];
        of_b[u] = b_tile[k][u * kSide + x];
      }
#pragma unroll
      for (int u = 0; u < kEach; ++u)
#pragma unroll
        for (int v = 0; v < kEach; ++v) sums[u][v] += of_a[u] * of_b[v];
    }
    __syncthreads();  // all threads have read them before the next ones overwrite them
  }
#pragma unroll
  for (int u = 0; u < kEach; ++u)
#pragma unroll
    for (int v = 0; v < kEach; ++v)
      if (const int i = row + u * kSide + y, j = column + v * kSide + x; i < n && j < n)
        out[int64_t{i} * n + j] = sums[u][v];
}

using Kernel = void(const float*, const float*, float*, int);

void launch(Kernel* kernel, int tile, const Matmul& p, StreamRef stream) {
  FATHOM_EXPECT(p.n <= 65535 * tile, "the grid is too large");
  if (p.n == 0) return;
  const dim3 grid(blocks_for(p.n, tile), blocks_for(p.n, tile));
  kernel<<<grid, dim3(kSide, kSide), 0, stream>>>(p.a.data(), p.b.data(), p.out.data(),
                                                  static_cast<int>(p.n));
  FATHOM_LAUNCHED();
}

}  // namespace

void no_tile(const Matmul& p, StreamRef stream) { launch(no_tile_kernel, kSide, p, stream); }
void tile_16(const Matmul& p, StreamRef stream) { launch(tile_kernel<16>, 16, p, stream); }
void tile_32(const Matmul& p, StreamRef stream) { launch(tile_kernel<32>, 32, p, stream); }
void tile_64(const Matmul& p, StreamRef stream) { launch(tile_kernel<64>, 64, p, stream); }
void tile_128(const Matmul& p, StreamRef stream) { launch(tile_kernel<128>, 128, p, stream); }

}  // namespace fathom::lab::tile_size
