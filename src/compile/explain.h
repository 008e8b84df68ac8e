// What the compiler decided, and why, as text.
#pragma once

#include <span>
#include <string>

#include "compile/function.h"
#include "compile/fuse.h"

namespace fathom::compile {

// Launches with their nodes, the rule that made them, bytes of memory before and after fusion and their
// share; then refusals with their reasons. Before: each kernel alone.
std::string explain(const Graph& graph, const Plan& plan, std::span<const int64_t> symbols);
// Every entry: why it was compiled, its guards, its hits.
std::string explain(const Function& function);

}  // namespace fathom::compile
