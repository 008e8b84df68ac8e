// sum = x + residual; y = sum * weight / rms(sum)       T x D, fp32
//
// bytes   16 T D   all that moves
// flops   5 T D    divided by the threads
// limit   memory bandwidth of all cores
// idea    as pipelined, each thread on rows and buffers of its own
#include "core/thread_pool.h"
#include "pipelined_rows.h"
#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_cpu {

void threads(const RmsNorm& p, Context& context) {
  context.pool.parallel_for(p.x.extent(0), 1,
                            [&](int64_t first, int64_t last) { pipelined_rows(p, first, last); });
}

}  // namespace fathom::lab::fused_rmsnorm_cpu
