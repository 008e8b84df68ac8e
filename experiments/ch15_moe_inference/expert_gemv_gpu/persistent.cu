// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 experts each, MXFP4
//
// bytes   13.2 MB of weights an expert at width 2880, once for all its slots
// flops   6 width^2 a slot
// limit   DRAM bandwidth. H200: T = 1 is 53 MB, 12 us at 4.55 TB/s; T = 8 is 278 MB, 61 us
// idea    a persistent grid: as many CTAs as fit, each with an equal run of the strips of all active experts,
//         which a CTA finds from the slots' experts. There are no waves of CTAs, and inputs are copied once
//         an expert. As soon as a tile is multiplied, its registers take the same tile of the next strip, so
//         that loads are in flight while the warp multiplies and while sums are added
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/per_device.h"
#include "fragments.cuh"

namespace fathom::lab::expert_gemv_gpu {
namespace {

constexpr int kResident = 3;  // CTAs of an SM

// An expert with slots, a bit for each.
struct Active {
  int expert;
  uint32_t slots;
};

struct Shared {
  alignas(128) Inputs inputs;
  PartialSums sums[2];
  Active active[kMaxSlots];
  int count;
};

// In the order of the experts' first slots. By one warp.
template <class Layer>
__device__ void find_active(Shared& shared, const Layer& layer, int slots) {
  const int lane        = threadIdx.x % 32;
  const uint32_t before = (1u << lane) - 1;
  const int id          = lane < slots ? layer.expert(lane) : -1;
  const uint32_t same   = __match_any_sync(~0u, id);
  const bool first      = id >= 0 && (same & before) == 0;
  const uint32_t firsts = __ballot_sync(~0u, first);
  if (first) shared.active[__popc(firsts & before)] = {id, same};
  if (lane == 0) shared.count = __popc(firsts);
}

template <class Layer>
__global__ void __launch_bounds__(kPartThreads, kResident)
    persistent_kernel(kernels::PackedExperts w, int slots, Layer layer) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared   = *reinterpret_cast<Shared*>(memory);
  const int part = threadIdx.x / 32, across = static_cast<int>(w.depth / kernels::kTile);
  if (part == 0) find_active(shared, layer, slots);
  __syncthreads();  // the experts are there
  const int strips = static_cast<int>(w.rows / kStrip), all = shared.count * strips;
  const int begin = all * static_cast<int>(blockIdx.x) / static_cast<int>(gridDim.x);
  const int end   = all * static_cast<int>(blockIdx.x + 1) / static_cast<int>(gridDim.x);
  if (begin == end) return;

  Weights weights[kPartTiles];
  const auto from   = [&](int n) { return Strip(w, shared.active[n / strips].expert, n % strips); };
  const Strip first = from(begin);
#pragma unroll
  for (int j = 0; j < kPartTiles; ++j)
    if (part + j * kParts < across) weights[j] = first.load(part + j * kParts);
  uint32_t address = 0;
  for (int n = begin; n < end; ++n) {
    const Active now = shared.active[n / strips];
    if (n == begin || n % strips == 0) {
      __syncwarp();  // no lane needs the inputs before
      copy_inputs(shared.inputs, layer, now.slots, across, part, kParts, threadIdx.x % 32, 32);
      ptx::cp_async_wait_group<0>();
      __syncwarp();  // a warp reads what its lanes have copied
      address = inputs_address(shared.inputs, now.slots);
    }
    const Strip next = from(min(n + 1, end - 1));
    float sums[4]    = {};
#pragma unroll
    for (int j = 0; j < kPartTiles; ++j)
      if (part + j * kParts < across) {
        multiply_tile(sums, weights[j], address, part + j * kParts);
        if (n + 1 < end) weights[j] = next.load(part + j * kParts);
      }
    put(shared.sums[n % 2], part, sums);
    __syncthreads();  // all parts are there; and those of the strip before have been added
    const int column = threadIdx.x / 8, g = threadIdx.x % 8;
    if (column < __popc(now.slots))
      store_sum(shared.sums[n % 2], column, g, layer, now.expert, n % strips, now.slots);
  }
}

template <class Layer>
void multiply(const kernels::PackedExperts& w, const ExpertGemv& p, StreamRef stream) {
  static PerDevice<bool> allowed;
  allowed.get([&] { return allow_shared_memory(persistent_kernel<Layer>, sizeof(Shared)), true; });
  persistent_kernel<<<kResident * multiprocessors(), kPartThreads, sizeof(Shared), stream>>>(
      w, static_cast<int>(p.experts.size()), Layer(p));
  FATHOM_LAUNCHED();
}

}  // namespace

void persistent(const ExpertGemv& p, StreamRef stream) {
  FATHOM_EXPECT(p.x.extent(0) <= kColumns && p.experts.size() <= kMaxSlots &&
                    p.x.extent(1) <= kMaxTiles * kernels::kTile,
                "persistent: at most 8 tokens, 32 slots and 2880 inputs");
  if (p.experts.size() == 0) return;
  multiply<Up>(p.up.packed, p, stream);
  multiply<Down>(p.down.packed, p, stream);
}

}  // namespace fathom::lab::expert_gemv_gpu
