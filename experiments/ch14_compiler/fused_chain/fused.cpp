// sum = x + residual; y = clamp(sum * weight / rms(sum))       T x D, fp32
//
// bytes   16 T D   and 24 T D move: lines of sum and y are fetched before they are written
// flops   7 T D
// limit   memory bandwidth
// idea    one launch: a tape of the same kernels over a row at a time, whose intermediate results stay in L1
#include "program.h"

namespace fathom::lab::fused_chain {

Launch<Chain> fused(const Chain& p, Context&) { return launch_of(p, compile::fuse); }

}  // namespace fathom::lab::fused_chain
