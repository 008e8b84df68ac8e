// out = sqrt(sin(x))                         n elements, fp32
//
// bytes   8 n      and 12 n move: a line of out is fetched before it is written
// flops   14 n
// limit   memory bandwidth
// idea    both functions on the vector while it is in a register
#include "elementwise.h"
#include "passes.h"

namespace fathom::lab::fused_elementwise_cpu {

void fused(const Elementwise& p, Context&) {
  map(p.x.data(), p.out.data(), p.x.size(), [](Vector v) { return hn::Sqrt(sine(v)); });
}

}  // namespace fathom::lab::fused_elementwise_cpu
