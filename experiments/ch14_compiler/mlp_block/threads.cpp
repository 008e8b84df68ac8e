// y = x + down(swiglu(up(norm(x))))       T x 256, fp32, weights in bf16
//
// flops   344 k a token
// limit   the FMA units; for a few tokens the weights' bytes
// idea    as fused, rows and panels of weights on all threads
#include "program.h"

namespace fathom::lab::mlp_block {

Launch<Block> threads(const Block&, Context&) { return launch_of(compile::fuse); }

}  // namespace fathom::lab::mlp_block
