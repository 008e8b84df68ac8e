// out(i) = walk of length(i) steps from start(i)         n items
//
// bytes   12 n     the counter's line moves n / 64 times
// flops   0
// limit   none
// idea    64 items for each atomic addition: 64 items share its cost, a line of out has one writer, and
//         threads end at most a batch apart
#include <algorithm>
#include <atomic>

#include "core/thread_pool.h"
#include "walks.h"

namespace fathom::lab::work_queue_cpu {

void batched_atomics(const Walks& p, Context& context) {
  constexpr int64_t kBatch = 64;
  const int64_t n          = p.start.size();
  alignas(64) std::atomic<int64_t> next{0};
  context.pool.run([&](int) {
    // Relaxed: the counter only hands out numbers; the end of run() orders the writes of out.
    for (int64_t begin; (begin = next.fetch_add(kBatch, std::memory_order_relaxed)) < n;)
      for (int64_t i = begin; i < std::min(n, begin + kBatch); ++i) p.out(i) = walk(p.start(i), p.length(i));
  });
}

}  // namespace fathom::lab::work_queue_cpu
