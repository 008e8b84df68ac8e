// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 experts each, MXFP4
//
// bytes   13.2 MB of weights an expert at width 2880; here another 50 MB written and 50 MB a slot read
// flops   6 width^2 a slot
// limit   DRAM bandwidth. H200: T = 1 is 53 MB, 12 us at 4.55 TB/s; with the traffic of dequantization
//         0.11 ms
// idea    none yet: matrices are dequantized to bf16 in memory, and a warp multiplies two rows with 16-byte
//         loads
#include "cuda/check.h"
#include "two_rows.cuh"

namespace fathom::lab::expert_gemv_gpu {
namespace {

template <class Layer>
__global__ void __launch_bounds__(kThreads) product_kernel(View<const bf16, 3> numbers, Layer layer) {
  const int slot = blockIdx.y, lane = threadIdx.x % 32, expert = layer.expert(slot);
  const int pair = blockIdx.x * kWarps + threadIdx.x / 32, p = packed_row(pair);
  const int rows = static_cast<int>(numbers.extent(1)), vectors = static_cast<int>(numbers.extent(2)) / 8;
  if (2 * pair >= rows) return;

  const uint4* matrix = rows::eights(&numbers(expert, 0, 0));
  const uint4* first  = matrix + kernels::source_row(Layer::kOrder, p, rows, 0) * vectors;
  const uint4* second = matrix + kernels::source_row(Layer::kOrder, p + 8, rows, 0) * vectors;
  const uint4* input  = layer.input(slot);
  float2 sums         = {};
#pragma unroll 4
  for (int v = lane; v < vectors; v += 32) {
    const auto x = rows::unpack(__ldg(input + v));
    const auto a = rows::unpack(rows::load_once(first + v)), b = rows::unpack(rows::load_once(second + v));
    for (int i = 0; i < rows::kEight; ++i) {
      sums.x += a.at[i] * x.at[i];
      sums.y += b.at[i] * x.at[i];
    }
  }
  sums = warp_sum(sums);
  if (lane == 0) layer.store(expert, p, slot, sums);
}

template <class Layer>
void multiply(const mxfp4::Matrices& w, const ExpertGemv& p, StreamRef stream) {
  mxfp4::dequantize(w.blocks, w.scales, p.numbers.data(), stream);
  const int64_t rows = w.blocks.extent(1);
  const dim3 grid(blocks_for(rows / 2, kWarps), static_cast<unsigned>(p.experts.size()));
  product_kernel<<<grid, kThreads, 0, stream>>>(
      View<const bf16, 3>(p.numbers.data(), {w.blocks.extent(0), rows, p.x.extent(1)}), Layer(p));
  FATHOM_LAUNCHED();
}

}  // namespace

void dequantized(const ExpertGemv& p, StreamRef stream) {
  if (p.experts.size() == 0) return;
  multiply<Up>(p.up, p, stream);
  multiply<Down>(p.down, p, stream);
}

}  // namespace fathom::lab::expert_gemv_gpu
