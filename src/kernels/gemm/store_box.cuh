// From a warpgroup's sums to shared memory, for a store by TMA.
#pragma once

#include <cstdint>

#include "cuda/bf16_pack.cuh"
#include "cuda/ptx.cuh"

namespace fathom::kernels {

// Writes columns 64 box .. 64 box + 64 of the 64 rows of sums that a warpgroup has (the d of cuda/wgmma.cuh)
// as bf16 to `to`, a shared address that is a multiple of 1024: rows of 128 bytes with the 128-byte swizzle.
template <int kSums>
__device__ void write_box(uint32_t to, const float (&sums)[kSums], int box) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row = 16 * warp + lane % 16;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    const int first = 32 * box + 8 * pair, piece = 2 * pair + lane / 16;
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) packed[i] = pack_bf16x2(sums[first + 2 * i], sums[first + 2 * i + 1]);
    ptx::stmatrix_x4(to + row * 128 + ((piece ^ row % 8) << 4), packed);
  }
}

}  // namespace fathom::kernels
