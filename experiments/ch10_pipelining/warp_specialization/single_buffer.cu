// logits(t, e) = sum_d x(t, d) w(e, d)        bf16, sums in fp32, 128 experts
//
// bytes   2 T D of x, once; from L2 also w once for each tile: 256 D
// flops   256 T D
// limit   DRAM bandwidth. H200: 65536 tokens of 2880 are 377 MB of x and 17 MB of logits, 0.09 ms at 4.5 TB/s
// idea    baseline: no roles and one buffer. All warps wait for a step, multiply, and meet before the
//         next step is asked for. Other CTAs of the multiprocessor use the gaps
#include "tile.cuh"

namespace fathom::lab::warp_specialization {
namespace {

__global__ void __launch_bounds__(kMaxGroups* kWarpgroup)
    single_buffer_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                         bf16* out, const Shape s) {
  extern __shared__ __align__(1024) unsigned char memory[];
  uint64_t& full             = *reinterpret_cast<uint64_t*>(memory);
  unsigned char* const stage = memory + kBarrierBytes;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_proxy_async();  // TMA sees the barrier
  }
  const int tile = blockIdx.x;
  Accumulator sums;
  for (int step = 0; step < s.steps; ++step) {
    __syncthreads();  // the barrier is initialised; all warps have multiplied the last step
    if (threadIdx.x == 0) load_step(s, x, w, tile, step, stage, &full);
    ptx::mbarrier_wait(&full, step & 1);
    multiply_step(s, sums, ptx::shared_address(stage), step == 0);
  }
  store_rows(s, sums, tile, out);
}

}  // namespace

void single_buffer(const Router& p, StreamRef stream) {
  const Shape s(p);
  if (s.tokens == 0) return;
  allow_shared_memory_once<single_buffer_kernel>(kBarrierBytes + kMaxGroups * kBoxBytes + kWBytes);
  single_buffer_kernel<<<static_cast<unsigned>(s.tiles()), static_cast<unsigned>(s.groups * kWarpgroup),
                         static_cast<size_t>(kBarrierBytes + s.stage_bytes()), stream>>>(
      map_of_x(p), map_of_w(p), p.out.data(), s);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::warp_specialization
