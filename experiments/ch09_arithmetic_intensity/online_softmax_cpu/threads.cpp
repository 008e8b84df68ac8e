// out = softmax of each row                  R x C, fp32
//
// bytes   8 R C    as in kept
// flops   23 R C   divided by the threads
// limit   bandwidth of the level that holds the rows, all cores
// idea    kept, each thread on rows of its own
#include "core/thread_pool.h"
#include "kept_row.h"
#include "softmax.h"

namespace fathom::lab::online_softmax_cpu {

void threads(const Softmax& p, Context& context) {
  context.pool.parallel_for(p.in.extent(0), 1, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) kept_row(p, r);
  });
}

}  // namespace fathom::lab::online_softmax_cpu
