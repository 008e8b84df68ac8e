// out = sqrt(sin(x))                         n elements, fp32
//
// bytes   8 n      all that moves
// flops   14 n     divided by the threads
// limit   memory bandwidth of all cores
// idea    as prefetched, each thread on its own piece, cut at cache lines
#include "core/thread_pool.h"
#include "elementwise.h"
#include "streamed_map.h"

namespace fathom::lab::fused_elementwise_cpu {

void threads(const Elementwise& p, Context& context) {
  constexpr int64_t kLine = 16;  // floats
  context.pool.parallel_for(p.x.size(), kLine, [&](int64_t begin, int64_t end) {
    streamed_map<kPrefetchAhead>(p.x.data() + begin, p.out.data() + begin, end - begin);
  });
}

}  // namespace fathom::lab::fused_elementwise_cpu
