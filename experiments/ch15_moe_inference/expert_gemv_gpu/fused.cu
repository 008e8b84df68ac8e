// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 experts each, MXFP4
//
// bytes   13.2 MB of weights an expert at width 2880, for each of its slots
// flops   6 width^2 a slot
// limit   DRAM bandwidth. H200: T = 1 is 53 MB, 12 us at 4.55 TB/s. But each weight of a lane takes about 4
//         instructions (two of shifts and masks, a conversion, an FMA): 12.4 million of them, one a cycle in
//         each of 528 schedulers, are 13 us. And every slot of an expert unpacks its weights again
// idea    more loads in flight and fewer of x: a warp walks over many rows. All 6 blocks of a lane's two rows
//         are loaded before the first is used; its part of x stays in 96 registers for all rows
#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "two_rows.cuh"

namespace fathom::lab::expert_gemv_gpu {
namespace {

constexpr int kEach     = 3;  // blocks of a row that a lane has: rows of up to 3072
constexpr int kResident = 3;  // CTAs of an SM: its registers hold so many

template <class Layer>
__global__ void __launch_bounds__(kThreads, kResident)
    fused_kernel(View<const uint8_t, 4> blocks, View<const uint8_t, 3> scales, Layer layer) {
  const int slot = blockIdx.y, lane = threadIdx.x % 32, expert = layer.expert(slot);
  const int rows = static_cast<int>(blocks.extent(1)), groups = static_cast<int>(blocks.extent(2));
  const auto* codes = reinterpret_cast<const uint4*>(&blocks(expert, 0, 0, 0));
  const uint8_t* of = &scales(expert, 0, 0);
  const auto has    = [&](int j) { return lane + 32 * j < groups; };

  float x[kEach][32];
#pragma unroll
  for (int j = 0; j < kEach; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 packed = has(j) ? __ldg(layer.input(slot) + (lane + 32 * j) * 4 + i) : uint4{};
      const auto eight   = rows::unpack(packed);
#pragma unroll
      for (int k = 0; k < rows::kEight; ++k) x[j][8 * i + k] = eight.at[k];
    }

  for (int pair = blockIdx.x * kWarps + threadIdx.x / 32; 2 * pair < rows; pair += gridDim.x * kWarps) {
    const int p = packed_row(pair);
    uint4 block[2][kEach];
    uint32_t code[2][kEach];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = static_cast<int>(kernels::source_row(Layer::kOrder, p + 8 * half, rows, 0));
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int at   = row * groups + lane + 32 * j;
        block[half][j] = has(j) ? rows::load_once(codes + at) : uint4{};
        code[half][j]  = has(j) ? __ldg(of + at) : 0;
      }
    }
    float2 sums = {};
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      sums.x += block_product(block[0][j], x[j]) * mxfp4::scale(code[0][j]);
      sums.y += block_product(block[1][j], x[j]) * mxfp4::scale(code[1][j]);
    }
    sums = warp_sum(sums);
    if (lane == 0) layer.store(expert, p, slot, sums);
  }
}

// As many CTAs as are resident at once, an equal part of them for each slot.
template <class Layer>
void multiply(const mxfp4::Matrices& w, const ExpertGemv& p, StreamRef stream) {
  const int64_t slots = p.experts.size(), all = blocks_for(w.blocks.extent(1) / 2, kWarps);
  const int64_t wanted = kResident * multiprocessors() / slots;
  const dim3 grid(static_cast<unsigned>(wanted < 1     ? 1
                                        : wanted < all ? wanted
                                                       : all),
                  static_cast<unsigned>(slots));
  fused_kernel<<<grid, kThreads, 0, stream>>>(w.blocks, w.scales, Layer(p));
  FATHOM_LAUNCHED();
}

}  // namespace

void fused(const ExpertGemv& p, StreamRef stream) {
  FATHOM_EXPECT(p.x.extent(1) <= kEach * 32 * 32, "a lane has up to 3 blocks of a row");
  if (p.experts.size() == 0) return;
  multiply<Up>(p.up, p, stream);
  multiply<Down>(p.down, p, stream);
}

}  // namespace fathom::lab::expert_gemv_gpu
