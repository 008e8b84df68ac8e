// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 experts each, MXFP4
//
// bytes   13.2 MB of weights an expert at width 2880, once for all its slots
// flops   6 width^2 a slot
// limit   DRAM bandwidth. H200: T = 1 is 53 MB, 12 us at 4.55 TB/s; T = 8 is 278 MB, 61 us
// idea    split-K in a CTA: 9 warps have a strip, each 5 of its 45 tiles, and all of a strip's weights are on
//         their way at once. One token's 1440 strips of the first layer are 13 thousand warps' work and not
//         11 warps on each SM, one long chain of loads each. The warps' sums are added through shared memory
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/per_device.h"
#include "fragments.cuh"

namespace fathom::lab::expert_gemv_gpu {
namespace {

constexpr int kStrips = 4;  // of a CTA

struct Shared {
  alignas(128) Inputs inputs;
  PartialSums sums[2];
};

// Grid: (strips / kStrips, slots).
template <class Layer>
__global__ void __launch_bounds__(kPartThreads)
    split_k_kernel(kernels::PackedExperts w, int slots, Layer layer) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared   = *reinterpret_cast<Shared*>(memory);
  const int slot = blockIdx.y, part = threadIdx.x / 32;
  const int expert = layer.expert(slot), across = static_cast<int>(w.depth / kernels::kTile);
  const uint32_t of_expert = slots_of_expert(layer, slot, slots);
  if (of_expert & ((1u << slot) - 1)) return;  // the CTAs of its first slot do all of them

  copy_inputs(shared.inputs, layer, of_expert, across, part, kParts, threadIdx.x % 32, 32);
  ptx::cp_async_wait_group<0>();
  __syncwarp();  // a warp reads what its lanes have copied
  const uint32_t address = inputs_address(shared.inputs, of_expert);
  for (int i = 0; i < kStrips; ++i) {
    const int strip = blockIdx.x * kStrips + i;
    const Strip from(w, expert, strip);
    float sums[4] = {};
    Weights weights[kPartTiles];
#pragma unroll
    for (int j = 0; j < kPartTiles; ++j)
      if (part + j * kParts < across) weights[j] = from.load(part + j * kParts);
#pragma unroll
    for (int j = 0; j < kPartTiles; ++j)
      if (part + j * kParts < across) multiply_tile(sums, weights[j], address, part + j * kParts);
    put(shared.sums[i % 2], part, sums);
    __syncthreads();  // all parts are there; and those of strip i - 1 have been added
    const int column = threadIdx.x / 8, g = threadIdx.x % 8;
    if (column < __popc(of_expert)) store_sum(shared.sums[i % 2], column, g, layer, expert, strip, of_expert);
  }
}

template <class Layer>
void multiply(const kernels::PackedExperts& w, const ExpertGemv& p, StreamRef stream) {
  static PerDevice<bool> allowed;
  allowed.get([&] { return allow_shared_memory(split_k_kernel<Layer>, sizeof(Shared)), true; });
  const auto slots = static_cast<int>(p.experts.size());
  const dim3 grid(blocks_for(w.rows / kStrip, kStrips), static_cast<unsigned>(slots));
  split_k_kernel<<<grid, kPartThreads, sizeof(Shared), stream>>>(w, slots, Layer(p));
  FATHOM_LAUNCHED();
}

}  // namespace

void split_k(const ExpertGemv& p, StreamRef stream) {
  FATHOM_EXPECT(p.x.extent(0) <= kColumns && p.experts.size() <= kMaxSlots &&
                    p.x.extent(1) <= kMaxTiles * kernels::kTile,
                "split_k: at most 8 tokens, 32 slots and 2880 inputs");
  if (p.experts.size() == 0) return;
  multiply<Up>(p.up.packed, p, stream);
  multiply<Down>(p.down.packed, p, stream);
}

}  // namespace fathom::lab::expert_gemv_gpu
