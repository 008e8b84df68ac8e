// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 experts each, MXFP4
//
// bytes   13.2 MB of weights an expert at width 2880, for each of its slots
// flops   6 width^2 a slot
// limit   DRAM bandwidth. H200: T = 1 is 53 MB, 12 us at 4.55 TB/s
// idea    baseline: a warp for two rows of the checkpoint's layout. A lane loads every 32nd block of them, 16
//         bytes, and the 32 numbers of x that it meets, unpacks them in registers, multiplies and adds
#include "cuda/check.h"
#include "two_rows.cuh"

namespace fathom::lab::expert_gemv_gpu {
namespace {

template <class Layer>
__global__ void __launch_bounds__(kThreads)
    plain_kernel(View<const uint8_t, 4> blocks, View<const uint8_t, 3> scales, Layer layer) {
  const int slot = blockIdx.y, lane = threadIdx.x % 32, expert = layer.expert(slot);
  const int pair = blockIdx.x * kWarps + threadIdx.x / 32, p = packed_row(pair);
  const int rows = static_cast<int>(blocks.extent(1)), groups = static_cast<int>(blocks.extent(2));
  if (2 * pair >= rows) return;

  const auto* codes  = reinterpret_cast<const uint4*>(&blocks(expert, 0, 0, 0));
  const uint8_t* of  = &scales(expert, 0, 0);
  const int first    = static_cast<int>(kernels::source_row(Layer::kOrder, p, rows, 0)) * groups;
  const int second   = static_cast<int>(kernels::source_row(Layer::kOrder, p + 8, rows, 0)) * groups;
  const uint4* input = layer.input(slot);
  float2 sums        = {};
  for (int g = lane; g < groups; g += 32) {
    float x[32];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto eight = rows::unpack(__ldg(input + 4 * g + i));
#pragma unroll
      for (int k = 0; k < rows::kEight; ++k) x[8 * i + k] = eight.at[k];
    }
    sums.x += block_product(rows::load_once(codes + first + g), x) * mxfp4::scale(__ldg(of + first + g));
    sums.y += block_product(rows::load_once(codes + second + g), x) * mxfp4::scale(__ldg(of + second + g));
  }
  sums = warp_sum(sums);
  if (lane == 0) layer.store(expert, p, slot, sums);
}

template <class Layer>
void multiply(const mxfp4::Matrices& w, const ExpertGemv& p, StreamRef stream) {
  const dim3 grid(blocks_for(w.blocks.extent(1) / 2, kWarps), static_cast<unsigned>(p.experts.size()));
  plain_kernel<<<grid, kThreads, 0, stream>>>(w.blocks, w.scales, Layer(p));
  FATHOM_LAUNCHED();
}

}  // namespace

void plain(const ExpertGemv& p, StreamRef stream) {
  if (p.experts.size() == 0) return;
  multiply<Up>(p.up, p, stream);
  multiply<Down>(p.down, p, stream);
}

}  // namespace fathom::lab::expert_gemv_gpu
