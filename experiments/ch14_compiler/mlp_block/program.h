// The block as a program of the tensor compiler, and what runs a plan of it.
#pragma once

#include "block.h"
#include "compile/fuse.h"

namespace fathom::lab::mlp_block {

// Captured and planned once; calls bring memory and the number of tokens.
Launch<Block> launch_of(compile::Plan (*plan)(const compile::Graph&));

}  // namespace fathom::lab::mlp_block
