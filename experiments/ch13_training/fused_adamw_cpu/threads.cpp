// One step of AdamW       n weights, fp32
//
// bytes   28 n: w, m, v and g read, w, m and v written; 40 n move, as a line is fetched before it is written
// flops   14 n
// limit   memory bandwidth of all cores
// idea    the same, each thread on weights of its own
#include "adamw.h"
#include "core/thread_pool.h"

namespace fathom::lab::fused_adamw_cpu {

void threads(const AdamW& p, Context& context) {
  context.pool.parallel_for(p.w.size(), 16, [&](int64_t first, int64_t last) {
    adamw::update(p.factors(), p.weights().from(first), last - first);
  });
}

}  // namespace fathom::lab::fused_adamw_cpu
