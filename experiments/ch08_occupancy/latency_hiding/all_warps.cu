// out(i) = where walk i stands after 16 steps            n walks, uint32
//
// bytes   64 n     16 n dependent loads of 4 bytes, each from another sector of 32
// flops   0
// limit   latency, until the DRAM's rate of random accesses is reached
// idea    as many warps as a multiprocessor holds, 64: 2048 loads are in flight
#include "cuda/check.h"
#include "cuda/multiprocessors.h"
#include "walk.h"

namespace fathom::lab::latency_hiding {
namespace {

constexpr int kThreads = 128;
constexpr int kBlocks  = 16;  // on each multiprocessor

__global__ void __launch_bounds__(kThreads)
    walk_kernel(const uint32_t* table, uint32_t mask, uint32_t* out, uint32_t n) {
  const uint32_t threads = gridDim.x * kThreads;
  for (uint32_t walk = blockIdx.x * kThreads + threadIdx.x; walk < n; walk += threads) {
    uint32_t at = start_of(walk) & mask;
    for (int step = 0; step < kSteps; ++step) at = (table[at] + walk) & mask;
    out[walk] = at;
  }
}

}  // namespace

void all_warps(const Walk& p, StreamRef stream) {
  const int64_t n = p.out.size();
  if (n == 0) return;
  FATHOM_EXPECT(n <= 1 << 30 && p.table.size() <= 1 << 30, "32-bit indices");
  const int blocks = kBlocks * multiprocessors();
  walk_kernel<<<blocks, kThreads, 0, stream>>>(p.table.data(), static_cast<uint32_t>(p.table.size() - 1),
                                               p.out.data(), static_cast<uint32_t>(n));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::latency_hiding
