// out(i) = in(i)                             n floats
//
// bytes   8 n    4 n read + 4 n written
// flops   0
// limit   DRAM bandwidth. H200: n = 2^28 moves 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    one thread of a block runs a ring of six stages in shared memory: four loads of 16 KiB are in
//         flight (cp.async.bulk, each completes on its stage's mbarrier) while two stages drain into out. Two
//         blocks on each multiprocessor have 128 KiB in flight, four times what memory latency requires. No
//         data passes through registers
#include <algorithm>

#include "copy.h"
#include "cuda/check.h"
#include "cuda/launch.cuh"
#include "cuda/multiprocessors.h"
#include "cuda/ptx.cuh"

namespace fathom::lab::tma_copy {
namespace {

constexpr int kThreads    = 32;  // one thread works, the others idle
constexpr int kBlocks     = 2;   // on a multiprocessor
constexpr int kStageBytes = 16384;
constexpr int kStages     = 6;
constexpr int kAhead      = 4;  // loads in flight; the other stages are being stored
constexpr int kRingBytes  = kStages * kStageBytes;

// Copies `bytes`, a multiple of 16, in so many chunks, and then `rest` floats, fewer than 4.
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const char* in, char* out, int64_t bytes, int chunks, int rest) {
  extern __shared__ __align__(128) char ring[];
  __shared__ uint64_t full[kStages];

  if (blockIdx.x == 0 && threadIdx.x < rest)
    reinterpret_cast<float*>(out + bytes)[threadIdx.x] =
        reinterpret_cast<const float*>(in + bytes)[threadIdx.x];
  if (threadIdx.x != 0) return;

  for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
  ptx::fence_proxy_async();  // makes the initialised barriers visible to TMA

  // The block's c-th chunk is the (blockIdx.x + c * gridDim.x)-th of all: neighbours in time are neighbours
  // in memory. It lies in stage c % kStages, in that stage's phase c / kStages.
  const int mine    = (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const auto offset = [&](int c) { return (blockIdx.x + int64_t{c} * gridDim.x) * kStageBytes; };
  const auto length = [&](int c) { return static_cast<int>(min(bytes - offset(c), int64_t{kStageBytes})); };
  const auto load   = [&](int c) {
    const int stage = c % kStages;
    ptx::mbarrier_arrive_expect_tx(&full[stage], length(c));
    ptx::cp_async_bulk_load(ring + stage * kStageBytes, in + offset(c), length(c), &full[stage]);
  };

  for (int c = 0; c < min(kAhead, mine); ++c) load(c);
  for (int c = 0; c < mine; ++c) {
    const int stage = c % kStages;
    ptx::mbarrier_wait(&full[stage], c / kStages & 1);  // chunk c has arrived
    ptx::cp_async_bulk_store(out + offset(c), ring + stage * kStageBytes, length(c));
    ptx::cp_async_bulk_commit_group();
    if (c + kAhead < mine) {
      // The next load overwrites chunk c + kAhead - kStages, whose store must have read it: of the later
      // stores, kStages - kAhead may still be reading.
      ptx::cp_async_bulk_wait_group_read<kStages - kAhead>();
      load(c + kAhead);
    }
  }
  // The block must not end, and free its shared memory, before the stores have read it.
  ptx::cp_async_bulk_wait_group_read<0>();
}

}  // namespace

void bulk(const Copy& p, StreamRef stream) {
  const int64_t n = p.in.size(), bytes = n / 4 * 16;
  if (n == 0) return;
  allow_shared_memory_once<copy_kernel>(kRingBytes);
  const int64_t chunks = (bytes + kStageBytes - 1) / kStageBytes;
  FATHOM_EXPECT(chunks <= INT32_MAX / 2, "the kernel counts chunks in 32 bits");
  const auto grid = static_cast<unsigned>(std::clamp<int64_t>(chunks, 1, kBlocks * multiprocessors()));
  copy_kernel<<<grid, kThreads, kRingBytes, stream>>>(reinterpret_cast<const char*>(p.in.data()),
                                                      reinterpret_cast<char*>(p.out.data()), bytes,
                                                      static_cast<int>(chunks), static_cast<int>(n % 4));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::tma_copy
