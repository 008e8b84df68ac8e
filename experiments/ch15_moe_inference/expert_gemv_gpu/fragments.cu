// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 experts each, MXFP4
//
// bytes   13.2 MB of weights an expert at width 2880, once for all its slots
// flops   6 width^2 a slot
// limit   DRAM bandwidth. H200: T = 1 is 53 MB, 12 us at 4.55 TB/s; T = 8 is 278 MB, 61 us
// idea    weights lie in memory as the A fragments of the tensor cores, so that a lane loads 16 bytes and has
//         32 weights where mma.sync wants them: 13 instructions unpack 8. The product has 8 columns whether
//         or not they are used, so the slots of an expert are columns, and its weights are read and unpacked
//         once. No lane adds: the tensor cores do
#include "cuda/check.h"
#include "fragments.cuh"

namespace fathom::lab::expert_gemv_gpu {
namespace {

constexpr int kAhead = 5;  // tiles whose weights a warp loads at once

// Grid: (strips / kWarps, slots).
template <class Layer>
__global__ void __launch_bounds__(kThreads)
    fragments_kernel(kernels::PackedExperts w, int slots, Layer layer) {
  __shared__ __align__(128) Inputs inputs;
  const int slot = blockIdx.y, strip = blockIdx.x * kWarps + threadIdx.x / 32;
  const int expert = layer.expert(slot), across = static_cast<int>(w.depth / kernels::kTile);
  const uint32_t of_expert = slots_of_expert(layer, slot, slots);
  if (of_expert & ((1u << slot) - 1)) return;  // the CTAs of its first slot do all of them

  copy_inputs(inputs, layer, of_expert, across, 0, 1, threadIdx.x, kThreads);
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // all copies are there
  if (strip * kStrip >= w.rows) return;
  const uint32_t address = inputs_address(inputs, of_expert);
  const Strip from(w, expert, strip);
  float sums[4] = {};
  for (int tile = 0; tile < across; tile += kAhead) {
    Weights weights[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (tile + i < across) weights[i] = from.load(tile + i);
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (tile + i < across) multiply_tile(sums, weights[i], address, tile + i);
  }
  const int g = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int next = 0; next < 2; ++next)
    if (column + next < __popc(of_expert))
      layer.store(expert, strip * kStrip + g, nth_bit(of_expert, column + next),
                  {sums[next], sums[2 + next]});
}

template <class Layer>
void multiply(const kernels::PackedExperts& w, const ExpertGemv& p, StreamRef stream) {
  const auto slots = static_cast<int>(p.experts.size());
  const dim3 grid(blocks_for(w.rows / kStrip, kWarps), static_cast<unsigned>(slots));
  fragments_kernel<<<grid, kThreads, 0, stream>>>(w, slots, Layer(p));
  FATHOM_LAUNCHED();
}

}  // namespace

void fragments(const ExpertGemv& p, StreamRef stream) {
  FATHOM_EXPECT(p.x.extent(0) <= kColumns && p.experts.size() <= kMaxSlots &&
                    p.x.extent(1) <= kMaxTiles * kernels::kTile,
                "fragments: at most 8 tokens, 32 slots and 2880 inputs");
  if (p.experts.size() == 0) return;
  multiply<Up>(p.up.packed, p, stream);
  multiply<Down>(p.down.packed, p, stream);
}

}  // namespace fathom::lab::expert_gemv_gpu
