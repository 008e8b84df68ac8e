// Products on the tensor cores, for the variants that read packed weights (kernels/gemm/packed_weights.h). A
// strip is 16 rows of an expert's matrix; a warp multiplies one with the inputs of all the expert's slots,
// which are the 8 columns of mma.sync.
#pragma once

#include "cuda/ptx.cuh"
#include "kernels/quant/mxfp4_dequantize.cuh"
#include "two_rows.cuh"

namespace fathom::lab::expert_gemv_gpu {

inline constexpr int kStrip    = 16;  // rows
inline constexpr int kColumns  = 8;   // slots of an expert: a token has it once, and there are 8 tokens
inline constexpr int kMaxSlots = 32;
inline constexpr int kMaxTiles = 45;  // of 64 inputs: 2880

// The inputs of an expert's slots in shared memory: piece c, 16 bytes, of row r is at c ^ r.
using Inputs = uint4[kMaxTiles][kColumns][8];

// The slots that have the expert of `slot`, a bit for each. By whole warps.
template <class Layer>
__device__ uint32_t slots_of_expert(const Layer& layer, int slot, int slots) {
  const int lane = threadIdx.x % 32;
  return __ballot_sync(~0u, lane < slots && layer.expert(lane) == layer.expert(slot));
}

__device__ inline int nth_bit(uint32_t bits, int n) {
#pragma unroll 1
  for (; n > 0; --n) bits &= bits - 1;
  return __ffs(bits) - 1;
}

// Copies tiles first, first + step, ... of the inputs, by threads 0 .. threads. The caller waits for them.
template <class Layer>
__device__ void copy_inputs(Inputs& to, const Layer& layer, uint32_t slots, int tiles, int first, int step,
                            int thread, int threads) {
  for (int r = 0; slots != 0; ++r, slots &= slots - 1) {
    const uint4* from = layer.input(__ffs(slots) - 1);
    for (int i = thread; first + i / 8 * step < tiles; i += threads) {
      const int tile = first + i / 8 * step;
      ptx::cp_async_cg(&to[tile][r][(i % 8) ^ r], from + tile * 8 + i % 8);
    }
  }
  ptx::cp_async_commit_group();
}

// The lane's ldmatrix address in the first tile: lanes 8 i .. + 8 address piece i of the 8 rows. If there are
// fewer rows, the first stands in for the missing ones, and those columns of the product are not stored.
__device__ inline uint32_t inputs_address(const Inputs& inputs, uint32_t slots) {
  const int lane = threadIdx.x % 32, r = lane % 8 < __popc(slots) ? lane % 8 : 0;
  return ptx::shared_address(&inputs[0][r][(lane / 8) ^ r]);
}

// A lane's weights of a strip's tile.
struct Weights {
  uint4 codes;      // a word for each k16 step
  uint32_t scales;  // of rows g and g + 8
};

struct Strip {
  const uint8_t *codes, *scales;

  __device__ Strip(const kernels::PackedExperts& w, int expert, int strip) {
    using Packed   = kernels::PackedExperts;
    const int lane = threadIdx.x % 32, across = static_cast<int>(w.depth / kernels::kTile);
    const int64_t tile = (expert * (w.rows / kernels::kTile) + strip / 4) * across;
    codes              = w.tiles + tile * Packed::kTileBytes + strip % 4 * 512 + lane * 16;
    scales             = w.scales + tile * Packed::kScaleBytes + strip % 4 * 32 + lane / 4 * 4;
  }
  __device__ Weights load(int tile) const {
    const uint8_t* of_tile = scales + tile * kernels::PackedExperts::kScaleBytes;
    return {ptx::ld_global_nc_no_allocate(codes + tile * kernels::PackedExperts::kTileBytes),
            __ldg(reinterpret_cast<const uint32_t*>(of_tile))};
  }
};

// sums += weights times the tile's inputs. Lane 4 g + t has rows g (sums[0], sums[1]) and g + 8 of columns
// 2 t and 2 t + 1.
__device__ inline void multiply_tile(float (&sums)[4], const Weights& w, uint32_t inputs, int tile) {
  uint32_t x[2][4], scales[4];
  ptx::ldmatrix_x4(x[0], inputs + tile * static_cast<int>(sizeof(Inputs) / kMaxTiles));
  ptx::ldmatrix_x4(x[1], (inputs ^ 64) + tile * static_cast<int>(sizeof(Inputs) / kMaxTiles));
  kernels::unpack_scales(w.scales, scales);
  const uint32_t words[4] = {w.codes.x, w.codes.y, w.codes.z, w.codes.w};
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    uint32_t a[4];
    kernels::dequantize_fragment(words[s], scales[s / 2], scales[2 + s / 2], a);
    ptx::mma_m16n8k16(sums, a, {x[s / 2][s % 2 * 2], x[s / 2][s % 2 * 2 + 1]});
  }
}

// ---- a strip's product in parts along the inputs, a warp each ----

inline constexpr int kParts = 9, kPartThreads = 32 * kParts;
inline constexpr int kPartTiles = kMaxTiles / kParts;  // of a warp: tiles warp, warp + kParts, ...

// [part][column][row], 4 floats beyond the rows: a warp's stores go to different banks.
using PartialSums = float[kParts][kColumns][kStrip + 4];

__device__ inline void put(PartialSums& to, int part, const float (&sums)[4]) {
  const int g = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) to[part][column + i % 2][g + i / 2 * 8] = sums[i];
}

// Adds the parts of rows g and g + 8 of a column, always in the same order, and stores them.
template <class Layer>
__device__ void store_sum(const PartialSums& from, int column, int g, const Layer& layer, int expert,
                          int strip, uint32_t slots) {
  float2 sum = {};
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    sum.x += from[part][column][g];
    sum.y += from[part][column][g + 8];
  }
  layer.store(expert, strip * kStrip + g, nth_bit(slots, column), sum);
}

}  // namespace fathom::lab::expert_gemv_gpu
