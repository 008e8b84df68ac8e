// out = sqrt(sin(x))                         n elements, fp32
//
// bytes   8 n      all that moves
// flops   14 n     as in streamed
// limit   memory bandwidth
// idea    x is prefetched a page ahead: the arithmetic between two loads fills the reorder buffer, so that
//         the core by itself has too few lines in flight
#include "elementwise.h"
#include "streamed_map.h"

namespace fathom::lab::fused_elementwise_cpu {

void prefetched(const Elementwise& p, Context&) {
  streamed_map<kPrefetchAhead>(p.x.data(), p.out.data(), p.x.size());
}

}  // namespace fathom::lab::fused_elementwise_cpu
