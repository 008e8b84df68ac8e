// out(i) = walk of length(i) steps from start(i)         n items
//
// bytes   12 n     hardly any traffic; the chains of shifts are the work
// flops   0
// limit   none: the question is how the work is distributed
// idea    none yet: equal numbers of neighbouring items for each thread. The others wait for the thread with
//         the costly end
#include "core/thread_pool.h"
#include "walks.h"

namespace fathom::lab::work_queue_cpu {

void static_split(const Walks& p, Context& context) {
  context.pool.parallel_for(p.start.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) p.out(i) = walk(p.start(i), p.length(i));
  });
}

}  // namespace fathom::lab::work_queue_cpu
