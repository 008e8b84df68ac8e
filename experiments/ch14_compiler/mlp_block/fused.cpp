// y = x + down(swiglu(up(norm(x))))       T x 256, fp32, weights in bf16
//
// flops   344 k a token
// limit   the FMA units; for a few tokens the weights' bytes
// idea    three launches: the norm; each product with what follows it, a few rows at a time while they are in
// L2
#include "program.h"

namespace fathom::lab::mlp_block {

Launch<Block> fused(const Block&, Context&) { return launch_of(compile::fuse); }

}  // namespace fathom::lab::mlp_block
