// What the kernels of kernels/gemm/linear_gemv.cu consist of, and others that add up products of packed
// weights in the same order, so that they have the same bits (kernels/sampling/screened_argmax.cu).
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "cuda/ptx.cuh"
#include "kernels/gemm/packed_weights.h"

namespace fathom::kernels::gemv {

inline constexpr int kStrip      = 32;  // columns
inline constexpr int kTileGroups = 4;   // groups of 16 rows of a tile
inline constexpr int kGroupBytes = PackedMatrix::kTileBytes / kTileGroups, kStripBytes = kGroupBytes / 2;
inline constexpr int kSums = 32;  // float4s that hold a warp's sums of 16 packed rows and 8 rows of x

struct Product {
  const bf16* x;
  int64_t x_stride;
  int rows;  // of x
  const bf16* tiles;
  int tile_rows, depth;

  // Address of a lane's part of a strip: group `group` of row of tiles `tile_row`.
  __device__ const uint8_t* strip(int tile_row, int group, int strip, int lane) const {
    const int64_t tile = int64_t{tile_row} * (depth / kTile) + strip / 2;
    return reinterpret_cast<const uint8_t*>(tiles) + tile * PackedMatrix::kTileBytes + group * kGroupBytes +
           strip % 2 * kStripBytes + lane * 16;
  }
};

// A lane's part of a strip, in registers.
struct Strip {
  uint4 steps[2];

  __device__ void load(const uint8_t* from) {
    steps[0] = ptx::ld_global_nc_no_allocate(from);
    steps[1] = ptx::ld_global_nc_no_allocate(from + kStripBytes / 2);
  }

  // sum += strip x, with x from ldmatrix.
  __device__ void multiply(const uint32_t (&x)[4], float (&sum)[4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s)
      ptx::mma_m16n8k16(sum, {steps[s].x, steps[s].y, steps[s].z, steps[s].w}, {x[2 * s], x[2 * s + 1]});
  }
};

// A range of columns of x in shared memory, `pieces` of 16 bytes of each row.
class SharedRows {
 public:
  __device__ SharedRows(uint4* shared, int pieces) : shared_(shared), pieces_(pieces) {}

  // By all threads of a CTA; returns when all of it has arrived.
  template <int kThreads>
  __device__ void load(const Product& product, int first_column, int thread) const {
    for (int i = thread; i < product.rows * pieces_; i += kThreads) {
      const int t = i / pieces_, p = i % pieces_;
      ptx::cp_async_cg(shared_ + t * stride() + p, product.x + t * product.x_stride + first_column + p * 8);
    }
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // all threads' pieces have arrived
  }

  // The address that a lane passes to ldmatrix for strip `strip`. Columns of the product beyond the last row
  // of x repeat that row and are not stored.
  __device__ uint32_t address(int rows, int strip, int lane) const {
    return ptx::shared_address(shared_ + min(lane % 8, rows - 1) * stride() + strip * (kStrip / 8) +
                               lane / 8);
  }

  __device__ uint4* end(int rows) const { return shared_ + rows * stride(); }

 private:
  __device__ int stride() const { return pieces_ + 1; }

  uint4* shared_;
  int pieces_;
};

FATHOM_HD constexpr int64_t shared_bytes_of_x(int64_t rows, int64_t columns) {
  return rows * (2 * columns + 16);
}

// The warps of a CTA that has all of K: warp w adds up strips w, w + kFullKWarps, .., and the sums of the
// warps are added in their order.
inline constexpr int kFullKWarps = 8;

}  // namespace fathom::kernels::gemv
