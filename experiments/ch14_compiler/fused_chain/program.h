// The chain as a program of the tensor compiler, and what runs a plan of it.
#pragma once

#include "chain.h"
#include "compile/fuse.h"

namespace fathom::lab::fused_chain {

// Captured and planned once; calls bring memory and the number of tokens.
Launch<Chain> launch_of(const Chain& p, compile::Plan (*plan)(const compile::Graph&));

}  // namespace fathom::lab::fused_chain
