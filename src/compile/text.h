// Programs as text, one line a node:
//
//   program "norm"
//   symbol T 1..65536 multiple 8
//   %0 = input "x" fp32[T, 256]                     @ text_test.cpp:21
//   %1 = mul %0 %0 fp32[T, 256]
//   %2 = sum %1 axes=[1] fp32[T]
//   region %1..%2
//   output "y" %2
//
// A type is a dtype and extents; a line's place follows @; # begins a comment. What print() writes, parse()
// reads back as the same graph.
#pragma once

#include <string>
#include <string_view>

#include "compile/graph.h"
#include "core/result.h"

namespace fathom::compile {

std::string print(const Graph& graph);
// A verified graph. Nodes without a place get `file` and their line; errors begin with both.
Result<Graph> parse(std::string_view text, const std::string& file);

}  // namespace fathom::compile
