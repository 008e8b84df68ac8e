// Reverse-mode automatic differentiation as a graph transform: forward and backward in one joint graph, which
// the passes treat like any other. What the backward half needs of the forward half is read from its nodes,
// so nothing is computed twice by this pass, and fusion and the slab see both halves.
#pragma once

#include <string>
#include <vector>

#include "compile/graph.h"

namespace fathom::compile {

// The graph, with one more input "d<output>", of the output's type, and outputs "d<input>" after its own: the
// vector-Jacobian product, d<input> = (d output / d input)^T d<output>. An input that the output does not
// need has a gradient of zeros. A gradient has its node's dtype, and each step of it is rounded to that.
//
// Where a function has a corner: min and max give all to the operand that they return, reduce_max shares
// equally among the largest, abs has slope 0 at 0. A matmul's gradient with respect to w takes x rounded to
// bf16, as every matmul takes its weights.
//
// Throws ContractError, with op, file and line, where the way from an input to the output leads through an op
// that has no rule; and where a name is unknown or taken.
Graph gradient(const Graph& graph, const std::string& output, const std::vector<std::string>& inputs);

}  // namespace fathom::compile
