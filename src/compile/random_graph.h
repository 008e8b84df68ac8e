// For tests: random graphs and inputs for them.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "compile/interpret.h"
#include "compile/tensor.h"

namespace fathom::compile {

// What a random graph may compute.
enum class Values {
  // Any ops, inputs with zeros of both signs and infinities: for passes that keep the interpreter's bits.
  any,
  // Small whole numbers, whose sums and products are exact in any order: for back ends that must give the
  // interpreter's bits.
  whole,
};

// Of up to `nodes` pointwise, cast, reduction, movement and matmul nodes over one symbol T.
Graph random_graph(uint64_t seed, int nodes, Values values);
std::map<std::string, Numbers> random_inputs(const Graph& graph, std::span<const int64_t> symbols,
                                             uint64_t seed, Values values);

}  // namespace fathom::compile
