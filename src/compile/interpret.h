// The oracle: runs a graph node by node in the plainest C++, one element after another.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compile/graph.h"

namespace fathom::compile {

enum class Arithmetic {
  typed,  // as the IR defines it: fp32, sums in double; every result is rounded to its dtype
  fp64,   // in double, rounded only where a result is bf16: the reference that rounding errors are held to
};

using Numbers = std::vector<double>;  // of a tensor, row-major; each exactly a number of its dtype

// The outputs by name. Throws ContractError where an input is missing or has another size.
std::map<std::string, Numbers> interpret(const Graph& graph, std::span<const int64_t> symbols,
                                         const std::map<std::string, Numbers>& inputs,
                                         Arithmetic arithmetic = Arithmetic::typed);

// One element of a pointwise op of this result type as `typed` defines it, rounding included.
double typed_pointwise(Op op, DType dtype, double a, double b);

}  // namespace fathom::compile
