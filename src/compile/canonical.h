// One form for programs that mean the same: identities that keep every bit of the interpreter's results (but
// the payloads of NaNs), equal nodes once, unused nodes not at all. Inputs stay, used or not.
//
// What is not here changes bits: x + 0 makes +0 of -0, a bf16 rounding between two fp32 values is part of the
// program, sums are not reordered.
#pragma once

#include "compile/graph.h"

namespace fathom::compile {

Graph canonical(const Graph& graph);

}  // namespace fathom::compile
