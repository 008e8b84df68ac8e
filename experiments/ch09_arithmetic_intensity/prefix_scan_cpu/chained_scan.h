// The array in blocks that stay in L2, scanned by all threads in one pass over memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <thread>

#include "core/thread_pool.h"
#include "hwy/cache_control.h"
#include "scan.h"
#include "scan_piece.h"

namespace fathom::lab::prefix_scan_cpu {

// A thread takes the next block, adds it up, waits for the sum of all blocks before it, hands on that sum and
// its own, and scans the block, which is in its L2 by then. A thread waits only for blocks that others have
// taken before it, and the oldest of these waits for nobody; so it does not matter which thread runs a share.
template <bool kStream>
void chained_scan(const Scan& p, ThreadPool& pool) {
  constexpr int64_t kBlock = 8192;  // 32 KiB of x and 32 KiB of out
  const int64_t n          = p.x.size();
  const int64_t blocks     = (n + kBlock - 1) / kBlock;
  alignas(64) std::atomic<int64_t> taken{0};
  struct alignas(64) Chain {
    std::atomic<int64_t> blocks{0};  // so many are in `sum`, which is written before this
    float sum = 0;
  } chain;

  pool.run_shares([&](int) {
    for (int64_t b; (b = taken.fetch_add(1, std::memory_order_relaxed)) < blocks;) {
      const float* x      = p.x.data() + b * kBlock;
      const int64_t count = std::min(kBlock, n - b * kBlock);
      const float sum     = reduce_piece(x, count);
      // Mostly known by now; yields, since the thread that knows it may have lost its CPU.
      while (chain.blocks.load(std::memory_order_acquire) != b) std::this_thread::yield();
      const float before = chain.sum;
      chain.sum          = before + sum;
      chain.blocks.store(b + 1, std::memory_order_release);
      scan_piece<kStream>(x, p.out.data() + b * kBlock, count, before);
    }
    if (kStream) hwy::FlushStream();  // orders the streaming stores before later stores of the caller
  });
}

}  // namespace fathom::lab::prefix_scan_cpu
