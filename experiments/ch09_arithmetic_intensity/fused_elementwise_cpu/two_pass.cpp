// out = sqrt(sin(x))                         n elements, fp32
//
// bytes   8 n      but 20 n move: x is read, out fetched and written, and fetched and written again
// flops   14 n     0.7 a byte
// limit   memory bandwidth
// idea    one pass for each function; the sine lies in out until its root replaces it
#include "elementwise.h"
#include "passes.h"

namespace fathom::lab::fused_elementwise_cpu {

void two_pass(const Elementwise& p, Context&) {
  sine_pass(p.x.data(), p.out.data(), p.x.size());
  root_pass(p.out.data(), p.out.data(), p.x.size());
}

}  // namespace fathom::lab::fused_elementwise_cpu
