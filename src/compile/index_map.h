// Where in a tensor an element of an iteration space lies: index i of the tensor is start + step * (index of
// the space along `axis`). Movement ops only change the map, so they cost nothing inside a kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compile/graph.h"

namespace fathom::compile {

struct AxisMap {
  int axis      = 0;  // of the space
  int64_t start = 0, step = 1;

  auto operator<=>(const AxisMap&) const = default;
};

using IndexMap = std::vector<AxisMap>;  // one entry for each axis of the tensor

IndexMap identity_map(size_t rank);

// The map of a movement node's operand, given the node's. None for a reshape that does more than add and
// drop extents of 1: then the operand has to lie in memory, and the node is that memory under another shape.
std::optional<IndexMap> through(const Graph& graph, int node, const IndexMap& map);
// Whether through() gives a map.
bool has_map(const Graph& graph, int node);

}  // namespace fathom::compile
