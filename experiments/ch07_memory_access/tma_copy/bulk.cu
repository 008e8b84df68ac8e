// out(i) = in(i)                             n floats
//
// bytes   8 n    4 n read + 4 n written
// flops   0
// limit   DRAM bandwidth. H200: n = 2^28 moves 2.15 GB, 0.54 ms at 3.98 TB/s
// idea    one thread of a block keeps a ring of six stages in shared memory turning: four loads of 16 KiB are
//         on their way (cp.async.bulk, each completes on its stage's mbarrier) while two stages drain into
//         out. Two blocks on each multiprocessor have 128 KiB under way, four times what the latency of
//         memory asks for. No data passes a register
#include <algorithm>

#include "copy.h"
#include "core/cuda.h"
#include "core/multiprocessors.h"
#include "core/ptx.cuh"

namespace fathom::lab::tma_copy {
namespace {

constexpr int kThreads    = 32;  // one works; a warp is what there is
constexpr int kBlocks     = 2;   // on a multiprocessor
constexpr int kStageBytes = 16384;
constexpr int kStages     = 6;
constexpr int kAhead      = 4;  // loads on their way; the other stages are being stored
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
  ptx::fence_proxy_async();  // the copy engine sees the barriers as they are now

  // The block's c-th chunk is the (blockIdx.x + c * gridDim.x)-th of all: neighbours in time are neighbours
  // in memory. It lies in stage c % kStages, in that stage's phase c / kStages.
  const int mine    = (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const auto offset = [&](int c) { return (blockIdx.x + int64_t{c} * gridDim.x) * kStageBytes; };
  const auto length = [&](int c) { return static_cast<int>(min(bytes - offset(c), int64_t{kStageBytes})); };
  const auto load   = [&](int c) {
    const int stage = c % kStages;
    ptx::mbarrier_arrive_expect_tx(&full[stage], length(c));
    ptx::bulk_load(ring + stage * kStageBytes, in + offset(c), length(c), &full[stage]);
  };

  for (int c = 0; c < min(kAhead, mine); ++c) load(c);
  for (int c = 0; c < mine; ++c) {
    const int stage = c % kStages;
    ptx::mbarrier_wait(&full[stage], c / kStages & 1);  // chunk c is here
    ptx::bulk_store(out + offset(c), ring + stage * kStageBytes, length(c));
    ptx::bulk_commit();
    if (c + kAhead < mine) {
      // The next load overwrites chunk c + kAhead - kStages, which must have left: of the stores since then,
      // kStages - kAhead may still be reading.
      ptx::bulk_wait_read<kStages - kAhead>();
      load(c + kAhead);
    }
  }
  ptx::bulk_wait_read<0>();  // shared memory goes with the block
}

}  // namespace

void bulk(const Copy& p, StreamRef stream) {
  const int64_t n = p.in.size(), bytes = n / 4 * 16;
  if (n == 0) return;
  static const cudaError_t allowed =
      cudaFuncSetAttribute(copy_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRingBytes);
  FATHOM_CUDA(allowed);
  const int64_t chunks = (bytes + kStageBytes - 1) / kStageBytes;
  FATHOM_EXPECT(chunks <= INT32_MAX / 2, "the kernel counts chunks in 32 bits");
  const auto grid = static_cast<unsigned>(std::clamp<int64_t>(chunks, 1, kBlocks * multiprocessors()));
  copy_kernel<<<grid, kThreads, kRingBytes, stream>>>(reinterpret_cast<const char*>(p.in.data()),
                                                      reinterpret_cast<char*>(p.out.data()), bytes,
                                                      static_cast<int>(chunks), static_cast<int>(n % 4));
  FATHOM_LAUNCHED();
}

}  // namespace fathom::lab::tma_copy
