// Packs 4-bit weights into the layout of kernels/quant/int4_gemv.h, once, when a model is loaded.
//
// bytes   the weights, read and written
// limit   memory bandwidth. A thread writes the 16 bytes of a lane, so that stores are coalesced; it reads
//         them one by one, and neighbours read the rest of the same sectors.
#include <algorithm>

#include "cuda/check.h"
#include "kernels/quant/int4_gemv.h"

namespace fathom::kernels {
namespace {

constexpr int kBlock = 256;

// Where both rows of a lane lie; those beyond the matrix are zeros.
struct TwoRows {
  int64_t row[2];
  bool exists[2];

  __device__ TwoRows(int64_t row_block, int g, int64_t rows)
      : row{row_block * 16 + g, row_block * 16 + g + 8}, exists{row[0] < rows, row[1] < rows} {}
};

__global__ void __launch_bounds__(kBlock) pack_codes_kernel(View<const uint8_t, 3> codes, int64_t row_blocks,
                                                            int64_t units, int64_t pieces, uint4* packed) {
  const int64_t piece = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (piece >= pieces) return;
  const int lane = static_cast<int>(piece % 32), t = lane % 4;
  const int64_t unit = piece / 32 % units, block = piece / 32 / units;
  const TwoRows of(block % row_blocks, lane / 4, codes.extent(1));
  uint32_t words[4];
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    words[s] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!of.exists[i % 2]) continue;
      // Columns 16 s + 2 t + 8 (i / 2) and the next are one byte.
      const uint32_t two = codes(block / row_blocks, of.row[i % 2], unit * 32 + s * 8 + i / 2 * 4 + t);
      words[s] |= (two & 15) << (4 * i) | (two >> 4) << (16 + 4 * i);
    }
  }
  packed[piece] = {words[0], words[1], words[2], words[3]};
}

// A thread writes what a lane has of one group, or zeros where a row ends in the middle of a step. Without
// `packed_zeros` there are no zero points.
__global__ void __launch_bounds__(kBlock)
    pack_grids_kernel(View<const fp16, 3> scales, View<const uint8_t, 3> zeros, int64_t row_blocks,
                      int64_t groups_of_step, int64_t pieces, uint32_t* packed_scales,
                      uint8_t* packed_zeros) {
  const int64_t piece = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (piece >= pieces) return;
  const int64_t groups = scales.extent(2), steps = (groups + groups_of_step - 1) / groups_of_step;
  const int64_t lane = piece / groups_of_step;  // 8 of each step
  const int64_t step = lane / 8 % steps, block = lane / 8 / steps;
  const int64_t group = step * groups_of_step + piece % groups_of_step;
  const TwoRows of(block % row_blocks, static_cast<int>(lane % 8), scales.extent(1));
  uint32_t two_scales = 0, two_zeros = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!of.exists[i] || group >= groups) continue;
    two_scales |= uint32_t{scales(block / row_blocks, of.row[i], group).bits} << (16 * i);
    if (packed_zeros) two_zeros |= uint32_t{zeros(block / row_blocks, of.row[i], group)} << (4 * i);
  }
  packed_scales[piece] = two_scales;
  if (packed_zeros) packed_zeros[piece] = static_cast<uint8_t>(two_zeros);
}

}  // namespace

void pack_int4(const Int4Matrices& from, const PackedInt4& to, StreamRef stream) {
  FATHOM_EXPECT(to.matrices == from.codes.extent(0) && to.rows == from.codes.extent(1) &&
                    to.depth == 2 * from.codes.extent(2) && to.depth % 64 == 0,
                "pack_int4: codes are [M, N, K / 2], K a multiple of 64");
  FATHOM_EXPECT(to.group == 64 || to.group == 128, "pack_int4: groups have 64 or 128 inputs");
  const auto has_grids = [&](const auto& view) {
    return view.extent(0) == to.matrices && view.extent(1) == to.rows && view.extent(2) == to.groups();
  };
  FATHOM_EXPECT(has_grids(from.scales) && (!from.zeros.data() || has_grids(from.zeros)),
                "pack_int4: scales and zeros are [M, N, groups]");
  if (to.code_bytes() == 0) return;
  FATHOM_EXPECT(!to.zeros == !from.zeros.data(), "pack_int4: both have zero points, or neither");
  const int64_t pieces = to.code_bytes() / 16, grids = to.scale_words();
  pack_codes_kernel<<<blocks_for(pieces, kBlock), kBlock, 0, stream>>>(
      from.codes, to.row_blocks(), to.depth / 64, pieces,
      reinterpret_cast<uint4*>(const_cast<uint8_t*>(to.codes)));
  FATHOM_LAUNCHED();
  pack_grids_kernel<<<blocks_for(grids, kBlock), kBlock, 0, stream>>>(
      from.scales, from.zeros, to.row_blocks(), 128 / to.group, grids, const_cast<uint32_t*>(to.scales),
      const_cast<uint8_t*>(to.zeros));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::kernels
