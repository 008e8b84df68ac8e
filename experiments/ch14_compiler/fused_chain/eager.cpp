// sum = x + residual; y = clamp(sum * weight / rms(sum))       T x D, fp32
//
// bytes   16 T D   but 80 T D move: ten launches, each result is fetched, written, and read by the next
// flops   7 T D
// limit   memory bandwidth
// idea    baseline: a launch a node, as a framework runs a program line by line. The kernels are those of the
//         fused tape, each alone
#include "program.h"

namespace fathom::lab::fused_chain {

Launch<Chain> eager(const Chain& p, Context&) { return launch_of(p, compile::unfused); }

}  // namespace fathom::lab::fused_chain
