// out(i) = walk of length(i) steps from start(i)         n items
//
// bytes   12 n     and the line of the counter, which moves from core to core n times
// flops   0
// limit   none
// idea    an atomic counter hands out the next item: no thread is idle while items are left
#include <atomic>

#include "core/thread_pool.h"
#include "walks.h"

namespace fathom::lab::work_queue_cpu {

void atomic_queue(const Walks& p, Context& context) {
  const int64_t n = p.start.size();
  alignas(64) std::atomic<int64_t> next{0};
  context.pool.run([&](int) {
    // Relaxed: the counter only hands out numbers; the end of run() orders the writes of out.
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;)
      p.out(i) = walk(p.start(i), p.length(i));
  });
}

}  // namespace fathom::lab::work_queue_cpu
