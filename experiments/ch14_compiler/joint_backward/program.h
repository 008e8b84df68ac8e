// The joint graph of y and its gradients, and what runs a plan of it.
#pragma once

#include "compile/fuse.h"
#include "gated_norm.h"

namespace fathom::lab::joint_backward {

// Captured, differentiated and planned once; calls bring memory and the number of tokens.
Launch<GatedNorm> launch_of(compile::Plan (*plan)(const compile::Graph&));

}  // namespace fathom::lab::joint_backward
