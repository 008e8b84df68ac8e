// out(c) = where chain c stands after 4096 steps      512 chains of dependent loads, uint32
//
// bytes   4 a step, of a line of 128
// flops   0
// limit   latency: a step starts when the load of the step before has arrived
// idea    the table is copied to shared memory first: no tags, no 64-bit address
#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"
#include "walk.cuh"

namespace fathom::lab::memory_hierarchy {
namespace {

constexpr int kMostBytes = 128 << 10;

extern __shared__ __align__(128) char lines[];

__global__ void __launch_bounds__(kThreads)
    walk_kernel(const char* table, int64_t bytes, uint32_t mask, uint32_t* out, int chains) {
  for (int at = threadIdx.x * 16; at < bytes; at += kThreads * 16) ptx::cp_async_cg(lines + at, table + at);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  __syncthreads();  // the copies of all threads have arrived before any thread reads them

  const int chain = blockIdx.x * kWarps + threadIdx.x / 32;
  if (threadIdx.x % 32 != 0 || chain >= chains) return;
  out[chain] = walk(chain, mask, [&](uint32_t at) { return *reinterpret_cast<const uint32_t*>(lines + at); });
}

}  // namespace

void shared(const Walk& p, StreamRef stream) {
  FATHOM_EXPECT(p.table.bytes() <= kMostBytes, "the table must fit into shared memory");
  allow_shared_memory_once<walk_kernel>(kMostBytes);
  launch(walk_kernel, p.table, p, static_cast<int>(p.table.bytes()), stream);
}

}  // namespace fathom::lab::memory_hierarchy
