// out(c) = where chain c stands after 4096 steps      512 chains of dependent loads, uint32
//
// bytes   4 a step, of a line of 128
// flops   0
// limit   latency: a step starts when the load of the step before has arrived
// idea    ld.global.cg: L1 is never asked, so the latency of L2 shows at every size up to its own
#include "walk.cuh"

namespace fathom::lab::memory_hierarchy {
namespace {

__global__ void __launch_bounds__(kThreads)
    walk_kernel(const char* table, int64_t, uint32_t mask, uint32_t* out, int chains) {
  const int chain = blockIdx.x * kWarps + threadIdx.x / 32;
  if (threadIdx.x % 32 != 0 || chain >= chains) return;
  out[chain] = walk(chain, mask, [&](uint32_t at) { return load_past_l1(table + at); });
}

}  // namespace

void past_l1(const Walk& p, StreamRef stream) { launch(walk_kernel, p.table, p, 0, stream); }

}  // namespace fathom::lab::memory_hierarchy
