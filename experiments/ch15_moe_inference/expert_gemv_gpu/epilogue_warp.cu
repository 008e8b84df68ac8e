// slots = weight (W2[e] gated(W1[e] x + b1[e]) + b2[e])          T tokens, 4 experts each, MXFP4
//
// bytes   13.2 MB of weights an expert at width 2880, once for all its slots
// flops   6 width^2 a slot
// limit   DRAM bandwidth. H200: T = 1 is 53 MB, 12 us at 4.55 TB/s; T = 8 is 278 MB, 61 us
// idea    warp specialization: the warps that multiply hand their sums to one more warp by an mbarrier and go
//         on with the next strip; it adds the parts, applies bias and activation, and stores. No barrier of
//         the CTA stands between weights and products, so a warp that is late does not stop the others' loads
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/per_device.h"
#include "fragments.cuh"

namespace fathom::lab::expert_gemv_gpu {
namespace {

constexpr int kResident   = 3;  // CTAs of an SM
constexpr int kCtaThreads = kPartThreads + 32;

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
  uint64_t full[2], empty[2];  // of the sums
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

// The warp that multiplies nothing. A lane has row g of every fourth column.
template <class Layer>
__device__ void add_parts(Shared& shared, int begin, int end, int strips, const Layer& layer) {
  for (int n = begin; n < end; ++n) {
    const Active now = shared.active[n / strips];
    const int buffer = (n - begin) % 2, parity = (n - begin) / 2 % 2;
    ptx::mbarrier_wait(&shared.full[buffer], parity);
    const int g = threadIdx.x % 8;
    for (int column = threadIdx.x % 32 / 8; column < __popc(now.slots); column += 4)
      store_sum(shared.sums[buffer], column, g, layer, now.expert, n % strips, now.slots);
    ptx::mbarrier_arrive(&shared.empty[buffer]);
  }
}

template <class Layer>
__global__ void __launch_bounds__(kCtaThreads, kResident)
    epilogue_warp_kernel(kernels::PackedExperts w, int slots, Layer layer) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared   = *reinterpret_cast<Shared*>(memory);
  const int part = threadIdx.x / 32, across = static_cast<int>(w.depth / kernels::kTile);
  if (part == 0) find_active(shared, layer, slots);
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(&shared.full[i], kPartThreads);
      ptx::mbarrier_init(&shared.empty[i], 32);
    }
  __syncthreads();  // the experts and the barriers are there
  const int strips = static_cast<int>(w.rows / kStrip), all = shared.count * strips;
  const int begin = all * static_cast<int>(blockIdx.x) / static_cast<int>(gridDim.x);
  const int end   = all * static_cast<int>(blockIdx.x + 1) / static_cast<int>(gridDim.x);
  if (begin == end) return;

  if (part == kParts) return add_parts(shared, begin, end, strips, layer);

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
    const int buffer = (n - begin) % 2, parity = (n - begin) / 2 % 2;
    ptx::mbarrier_wait(&shared.empty[buffer], 1 - parity);
    put(shared.sums[buffer], part, sums);
    ptx::mbarrier_arrive(&shared.full[buffer]);
  }
}

template <class Layer>
void multiply(const kernels::PackedExperts& w, const ExpertGemv& p, StreamRef stream) {
  static PerDevice<bool> allowed;
  allowed.get([&] { return allow_shared_memory(epilogue_warp_kernel<Layer>, sizeof(Shared)), true; });
  epilogue_warp_kernel<<<kResident * multiprocessors(), kCtaThreads, sizeof(Shared), stream>>>(
      w, static_cast<int>(p.experts.size()), Layer(p));
  FATHOM_LAUNCHED();
}

}  // namespace

void epilogue_warp(const ExpertGemv& p, StreamRef stream) {
  FATHOM_EXPECT(p.x.extent(0) <= kColumns && p.experts.size() <= kMaxSlots &&
                    p.x.extent(1) <= kMaxTiles * kernels::kTile,
                "epilogue_warp: at most 8 tokens, 32 slots and 2880 inputs");
  if (p.experts.size() == 0) return;
  multiply<Up>(p.up.packed, p, stream);
  multiply<Down>(p.down.packed, p, stream);
}

}  // namespace fathom::lab::expert_gemv_gpu
