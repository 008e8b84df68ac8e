// out(c) = where chain c stands after 4096 steps      512 chains of dependent loads, uint32
//
// bytes   4 a step, of a line of 128
// flops   0
// limit   latency: a step starts when the load of the step before has arrived
// idea    baseline: an ordinary load. The smallest level that holds the table answers: L1, L2 or DRAM.
//         The block reads what fits into L1 first, since L1 starts empty
#include "walk.cuh"

namespace fathom::lab::memory_hierarchy {
namespace {

constexpr int64_t kWarmBytes = 256 << 10;  // all that L1 could hold

__global__ void __launch_bounds__(kThreads)
    walk_kernel(const char* table, int64_t bytes, uint32_t mask, uint32_t* out, int chains) {
  const int warm = static_cast<int>(min(bytes, kWarmBytes));
#pragma unroll 8
  for (int at = threadIdx.x * kLine; at < warm; at += kThreads * kLine) (void)load_through_l1(table + at);

  const int chain = blockIdx.x * kWarps + threadIdx.x / 32;
  if (threadIdx.x % 32 != 0 || chain >= chains) return;
  out[chain] = walk(chain, mask, [&](uint32_t at) { return load_through_l1(table + at); });
}

}  // namespace

void through_l1(const Walk& p, StreamRef stream) { launch(walk_kernel, p.table, p, 0, stream); }

}  // namespace fathom::lab::memory_hierarchy
