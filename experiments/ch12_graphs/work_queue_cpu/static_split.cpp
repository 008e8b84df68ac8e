// out(i) = walk of length(i) steps from start(i)         n items
//
// bytes   12 n     hardly any traffic; the chains of shifts are the work
// flops   0
// limit   none: who works when is the question
// idea    equal numbers of neighbouring items for each thread. Whoever gets the costly end keeps the others
// waiting
#include "walks.h"

namespace fathom::lab::work_queue_cpu {

void static_split(const Walks& p, Context& context) {
  context.pool.parallel_for(p.start.size(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) p.out(i) = walk(p.start(i), p.length(i));
  });
}

}  // namespace fathom::lab::work_queue_cpu
