// Packs MXFP4 experts into the layout of kernels/gemm/packed_weights.h.
//
// bytes   17/32 of the number of weights read, and as many written
// limit   memory bandwidth. A warp packs 16 rows of a tile, as a warp multiplies them later: the lanes of one
//         g read the same two rows of 32 bytes, whole sectors, and store 512 consecutive bytes.
#include "cuda/check.h"
#include "kernels/gemm/packed_weights.h"
#include "kernels/moe/pack_experts.h"
#include "kernels/quant/mxfp4_dequantize.cuh"

namespace fathom::kernels {
namespace {

constexpr int kBlock       = 256;
constexpr uint32_t kNoCode = 126;  // of padding: the scale 2^0

// The matrices of all experts, one after another, in the checkpoint's order.
struct Source {
  const uint8_t* blocks;
  const uint8_t* scales;
  int64_t rows, groups;  // of one expert
  RowOrder order;
  int exponent;

  // Index of the MXFP4 block of an expert's packed row, or -1 for padding.
  __device__ int64_t block(int64_t expert, int64_t p, int64_t group) const {
    const int64_t row = source_row(order, p, rows, 0);
    return row < 0 || group >= groups ? -1 : (expert * rows + row) * groups + group;
  }
  __device__ uint4 codes(int64_t block) const {
    return block < 0 ? uint4{} : __ldg(reinterpret_cast<const uint4*>(blocks) + block);
  }
  __device__ uint32_t scale(int64_t block) const {
    return block < 0 ? kNoCode : kNoCode + max(0, scales[block] - exponent);
  }
};

// A thread for every lane of the four warps of every tile. `tiles_across` tiles make a row of tiles,
// `tiles_of_expert` an expert.
__global__ void __launch_bounds__(kBlock)
    pack_experts_kernel(Source source, int64_t tiles_across, int64_t tiles_of_expert, int64_t tiles,
                        uint4* packed, uint32_t* packed_scales) {
  const int64_t piece = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  const int64_t tile  = piece / 128;
  if (tile >= tiles) return;
  const int lane = static_cast<int>(piece % 32), t = lane % 4;
  const int64_t expert = tile / tiles_of_expert, of_expert = tile % tiles_of_expert;
  const int64_t p     = of_expert / tiles_across * kTile + piece % 128 / 32 * 16 + lane / 4;
  const int64_t group = of_expert % tiles_across * 2;

  int64_t block[2][2];  // of rows g and g + 8, the first and second 32 columns
  uint32_t word[4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint4 codes[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      block[i][half] = source.block(expert, p + 8 * i, group + half);
      codes[i]       = source.codes(block[i][half]);
    }
    // Step s has 8 bytes of each row. Columns 2 t and 2 t + 1 are byte t of them, columns 2 t + 8 and 2 t + 9
    // byte t + 4.
    const auto byte    = [&](uint32_t four) { return four >> (8 * t) & 0xff; };
    word[2 * half]     = pack_fragment(byte(codes[0].x) | byte(codes[1].x) << 8 | byte(codes[0].y) << 16 |
                                       byte(codes[1].y) << 24);
    word[2 * half + 1] = pack_fragment(byte(codes[0].z) | byte(codes[1].z) << 8 | byte(codes[0].w) << 16 |
                                       byte(codes[1].w) << 24);
  }
  packed[piece] = {word[0], word[1], word[2], word[3]};
  if (t == 0)
    packed_scales[piece / 4] = source.scale(block[0][0]) | source.scale(block[0][1]) << 8 |
                               source.scale(block[1][0]) << 16 | source.scale(block[1][1]) << 24;
}

}  // namespace

void pack_experts(View<const uint8_t, 4> blocks, View<const uint8_t, 3> scales, RowOrder order, int exponent,
                  uint8_t* tiles, uint8_t* packed_scales, StreamRef stream) {
  const int64_t experts = blocks.extent(0), rows = blocks.extent(1), groups = blocks.extent(2);
  FATHOM_EXPECT(blocks.extent(3) == 16 && blocks.contiguous() && scales.contiguous() &&
                    scales.extent(0) == experts && scales.extent(1) == rows && scales.extent(2) == groups,
                "pack_experts: blocks are [E, out, G, 16] and scales [E, out, G], contiguous");
  FATHOM_EXPECT(order != RowOrder::rotary_pairs && exponent >= 0 && exponent <= 126,
                "pack_experts: rows in plain order or gate_pairs, an exponent from output_exponent()");
  const int64_t tiles_across    = padded(32 * groups) / kTile;
  const int64_t tiles_of_expert = packed_rows(order, rows, 0) / kTile * tiles_across,
                all             = experts * tiles_of_expert;
  if (all == 0) return;
  pack_experts_kernel<<<blocks_for(all * 128, kBlock), kBlock, 0, stream>>>(
      {blocks.data(), scales.data(), rows, groups, order, exponent}, tiles_across, tiles_of_expert, all,
      reinterpret_cast<uint4*>(tiles), reinterpret_cast<uint32_t*>(packed_scales));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::kernels
