// y = x + down(swiglu(up(norm(x))))       T x 256, fp32, weights in bf16
//
// flops   344 k a token
// limit   the FMA units; for a few tokens the weights' bytes
// idea    baseline: a launch a node, 22 of them, whose results go to memory
#include "program.h"

namespace fathom::lab::mlp_block {

Launch<Block> eager(const Block&, Context&) { return launch_of(compile::unfused); }

}  // namespace fathom::lab::mlp_block
