// From a warpgroup's sums to shared memory, for a store by TMA.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/bf16_pack.cuh"
#include "cuda/ptx.cuh"

namespace fathom::kernels {

// Writes 128 bytes of columns (64 of bf16 from 64 box on, 32 of fp32 from 32 box on) of the 64 rows of sums
// that a warpgroup has (the d of cuda/wgmma.cuh) to `to`, a shared address that is a multiple of 1024: rows
// of 128 bytes with the 128-byte swizzle. With another kBoxN (bf16, a multiple of 16) rows of that many
// columns without a swizzle; 48 of them cost two ways of bank conflicts.
template <class Output, int kBoxN = 128 / static_cast<int>(sizeof(Output)), int kSums>
__device__ void write_box(uint32_t to, const float (&sums)[kSums], int box) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  if constexpr (std::is_same_v<Output, float>) {
    const int row = 16 * warp + lane / 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // 8 columns: two pieces of 16 bytes
      const uint32_t at    = to + (((2 * j + lane % 4 / 2) ^ row % 8) << 4) + lane % 2 * 8;
      const float* const v = &sums[16 * box + 4 * j];
      ptx::st_shared_v2(at + row * 128, v[0], v[1]);
      ptx::st_shared_v2(at + (row + 8) * 128, v[2], v[3]);
    }
  } else {
    const int row = 16 * warp + lane % 16;
#pragma unroll
    for (int pair = 0; pair < kBoxN / 16; ++pair) {
      const int first = kBoxN / 2 * box + 8 * pair, piece = 2 * pair + lane / 16;
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) packed[i] = pack_bf16x2(sums[first + 2 * i], sums[first + 2 * i + 1]);
      ptx::stmatrix_x4(to + row * (2 * kBoxN) + ((kBoxN == 64 ? piece ^ row % 8 : piece) << 4), packed);
    }
  }
}

}  // namespace fathom::kernels
