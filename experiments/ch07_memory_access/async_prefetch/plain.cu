// out(i) = sum_t tap(t) in(i + t)            n outputs, 32 taps, fp32
//
// bytes   8 n    4 n read + 4 n written; neighbouring tiles share 31 inputs
// flops   64 n
// limit   DRAM bandwidth. H200: n = 2^27 moves 1.07 GB, 0.27 ms at the 3.98 TB/s of a copy; the 8.6 GFLOP
//         alone would take 0.13 ms
// idea    baseline: a block for each tile. Between a block's loads and its barrier lies the whole latency of
//         memory; only the other three blocks of the multiprocessor work meanwhile
#include "cuda/check.h"
#include "filter_tile.cuh"

namespace fathom::lab::async_prefetch {
namespace {

// in[i, i + 4); zeros past the end.
__device__ float4 load_vector(const float* in, int i, int size) {
  if (i + 4 <= size) return *reinterpret_cast<const float4*>(in + i);
  return {i < size ? in[i] : 0, i + 1 < size ? in[i + 1] : 0, i + 2 < size ? in[i + 2] : 0, 0};
}

__global__ void __launch_bounds__(kThreads, kBlocks)
    plain_kernel(const float* in, int size, const float* tap, float* out, int n) {
  __shared__ alignas(16) float tile[kTileIn];

  const int first = blockIdx.x * kTile;
  float4 loaded[kVectorsEach];  // all in flight before the first is stored
#pragma unroll
  for (int u = 0; u < kVectorsEach; ++u)
    if (const int v = u * kThreads + threadIdx.x; v < kVectors)
      loaded[u] = load_vector(in, first + 4 * v, size);
#pragma unroll
  for (int u = 0; u < kVectorsEach; ++u)
    if (const int v = u * kThreads + threadIdx.x; v < kVectors)
      *reinterpret_cast<float4*>(&tile[4 * v]) = loaded[u];
  const Taps taps = load_taps(tap);
  __syncthreads();  // the tile is complete before any thread reads from it

  filter_tile(tile, taps, out + first, n - first);
}

}  // namespace

void plain(const Filter& p, StreamRef stream) {
  FATHOM_EXPECT(p.in.size() <= INT32_MAX - kTileIn, "the kernel counts in 32 bits");
  if (p.out.size() == 0) return;
  const unsigned tiles = blocks_for(p.out.size(), kTile);
  plain_kernel<<<tiles, kThreads, 0, stream>>>(p.in.data(), static_cast<int>(p.in.size()), p.taps.data(),
                                               p.out.data(), static_cast<int>(p.out.size()));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::async_prefetch
