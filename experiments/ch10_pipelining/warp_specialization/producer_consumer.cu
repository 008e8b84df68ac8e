// logits(t, e) = sum_d x(t, d) w(e, d)        bf16, sums in fp32, 128 experts
//
// bytes   2 T D of x, once; from L2 also w once for each tile: 256 D
// flops   256 T D
// limit   DRAM bandwidth. H200: 65536 tokens of 2880 are 377 MB of x and 17 MB of logits, 0.09 ms at 4.5 TB/s
// idea    a warp of its own loads. It waits for a stage until the consumer warps have left it, each at
//         its own pace, so that no warp waits for all others, and no warp that multiplies also loads
#include "tile.cuh"

namespace fathom::lab::warp_specialization {
namespace {

struct Barriers {
  uint64_t full[kMaxBuffers], empty[kMaxBuffers];
};
static_assert(sizeof(Barriers) <= kBarrierBytes);

__global__ void __launch_bounds__(kMaxGroups* kWarpgroup + 32)
    producer_consumer_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                             bf16* out, const Shape s) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& [full, empty]       = *reinterpret_cast<Barriers*>(memory);
  unsigned char* const ring = memory + kBarrierBytes;
  const int warp = threadIdx.x / 32, consumers = s.groups * kWarpgroup / 32;
  if (threadIdx.x == 0) {
    for (int b = 0; b < kMaxBuffers; ++b) {
      ptx::mbarrier_init(&full[b], 1);
      ptx::mbarrier_init(&empty[b], consumers);
    }
    ptx::fence_proxy_async();  // TMA sees the barriers
  }
  __syncthreads();  // and so do the other threads

  // Step n is in stage n % buffers, in that stage's phase n / buffers.
  const int tile = blockIdx.x;
  if (warp == consumers) {  // the loader
    if (threadIdx.x % 32 != 0) return;
    for (int step = 0; step < s.steps; ++step) {
      const int stage = step % s.buffers;
      if (step >= s.buffers) ptx::mbarrier_wait(&empty[stage], (step / s.buffers - 1) & 1);
      load_step(s, x, w, tile, step, ring + stage * s.stage_bytes(), &full[stage]);
    }
    return;
  }

  Accumulator sums;
  for (int step = 0; step < s.steps; ++step) {
    const int stage = step % s.buffers;
    ptx::mbarrier_wait(&full[stage], step / s.buffers & 1);
    multiply_step(s, sums, ptx::shared_address(ring + stage * s.stage_bytes()), step == 0);
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[stage]);  // the warp has left the stage
  }
  store_rows(s, sums, tile, out);
}

}  // namespace

void producer_consumer(const Router& p, StreamRef stream) {
  const Shape s(p);
  if (s.tokens == 0) return;
  const int bytes = kBarrierBytes + s.buffers * s.stage_bytes();
  allow_shared_memory_once<producer_consumer_kernel>(kMostSharedBytes);
  producer_consumer_kernel<<<static_cast<unsigned>(s.tiles()),
                             static_cast<unsigned>(s.groups * kWarpgroup + 32), static_cast<size_t>(bytes),
                             stream>>>(map_of_x(p), map_of_w(p), p.out.data(), s);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::warp_specialization
