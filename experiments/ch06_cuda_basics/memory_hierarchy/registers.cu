// out(c) = where chain c stands after 4096 steps      512 chains of dependent loads, uint32
//
// bytes   4 a step, of a line of 128
// flops   0
// limit   latency: a step starts when the load of the step before has arrived
// idea    a warp has 32 lanes, a table of 4 KiB has 32 lines: each lane keeps a line's word in a
//         register, and a shuffle reads the register of the lane that a step asks for
#include "walk.cuh"

namespace fathom::lab::memory_hierarchy {
namespace {

__global__ void __launch_bounds__(kThreads)
    walk_kernel(const char* table, int64_t bytes, uint32_t mask, uint32_t* out, int chains) {
  const int chain = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (chain >= chains) return;  // a whole warp
  const uint32_t word = lane * kLine < bytes ? load_through_l1(table + lane * kLine) : 0;
  const uint32_t end =
      walk(chain, mask, [&](uint32_t at) { return __shfl_sync(~0u, word, static_cast<int>(at / kLine)); });
  if (lane == 0) out[chain] = end;
}

}  // namespace

void registers(const Walk& p, StreamRef stream) {
  FATHOM_EXPECT(p.table.bytes() <= 32 * kLine, "a lane keeps one line");
  launch(walk_kernel, p.table, p, 0, stream);
}

}  // namespace fathom::lab::memory_hierarchy
