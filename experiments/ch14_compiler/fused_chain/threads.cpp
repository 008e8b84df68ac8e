// sum = x + residual; y = clamp(sum * weight / rms(sum))       T x D, fp32
//
// bytes   16 T D   and 24 T D move, as in fused
// flops   7 T D    divided by the threads
// limit   memory bandwidth of all cores
// idea    the fused tape, blocks of rows on all threads
#include "program.h"

namespace fathom::lab::fused_chain {

Launch<Chain> threads(const Chain& p, Context&) { return launch_of(p, compile::fuse); }

}  // namespace fathom::lab::fused_chain
