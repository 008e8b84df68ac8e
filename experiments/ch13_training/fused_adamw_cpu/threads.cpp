// One step of AdamW       n weights, fp32
//
// bytes   28 n: w, m, v and g read, w, m and v written; 40 n move, as lines are fetched before they are
// written flops   14 n limit   memory bandwidth of all cores idea    the same, each thread on weights of its
// own
#include "core/thread_pool.h"
#include "fused_range.h"

namespace fathom::lab::fused_adamw_cpu {

void threads(const AdamW& p, Context& context) {
  context.pool.parallel_for(p.w.size(), 16,
                            [&](int64_t first, int64_t last) { fused_range(p, first, last); });
}

}  // namespace fathom::lab::fused_adamw_cpu
