// logits(t, e) = sum_d x(t, d) w(e, d)        bf16, sums in fp32, 128 experts
//
// bytes   2 T D of x, once; from L2 also w once for each tile: 256 D
// flops   256 T D
// limit   DRAM bandwidth. H200: 65536 tokens of 2880 are 377 MB of x and 17 MB of logits, 0.09 ms at 4.5 TB/s
// idea    a ring of num_buffers stages, still without roles: later steps are on their way while this one is
//         multiplied, but all warps meet at every step before thread 0 may refill the stage
#include "tile.cuh"

namespace fathom::lab::warp_specialization {
namespace {

__global__ void __launch_bounds__(kMaxGroups* kWarpgroup)
    multi_buffer_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                        bf16* out, const Shape s) {
  extern __shared__ __align__(1024) unsigned char memory[];
  uint64_t* const full      = reinterpret_cast<uint64_t*>(memory);
  unsigned char* const ring = memory + kBarrierBytes;
  const int tile            = blockIdx.x;
  const auto load           = [&](int step) {
    const int stage = step % s.buffers;
    load_step(s, x, w, tile, step, ring + stage * s.stage_bytes(), &full[stage]);
  };
  if (threadIdx.x == 0) {
    for (int b = 0; b < s.buffers; ++b) ptx::mbarrier_init(&full[b], 1);
    ptx::fence_proxy_async();  // TMA sees the barriers
    for (int step = 0; step < min(s.buffers, s.steps); ++step) load(step);
  }
  __syncthreads();  // the barriers are initialised

  Accumulator sums;
  for (int step = 0; step < s.steps; ++step) {
    const int stage = step % s.buffers;
    ptx::mbarrier_wait(&full[stage], step / s.buffers & 1);
    multiply_step(s, sums, ptx::shared_address(ring + stage * s.stage_bytes()), step == 0);
    __syncthreads();  // all warps have multiplied the step
    if (threadIdx.x == 0 && step + s.buffers < s.steps) load(step + s.buffers);
  }
  store_rows(s, sums, tile, out);
}

}  // namespace

void multi_buffer(const Router& p, StreamRef stream) {
  const Shape s(p);
  if (s.tokens == 0) return;
  const int bytes = kBarrierBytes + s.buffers * s.stage_bytes();
  allow_shared_memory_once<multi_buffer_kernel>(kMostSharedBytes);
  multi_buffer_kernel<<<static_cast<unsigned>(s.tiles()), static_cast<unsigned>(s.groups * kWarpgroup),
                        static_cast<size_t>(bytes), stream>>>(map_of_x(p), map_of_w(p), p.out.data(), s);
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::warp_specialization
