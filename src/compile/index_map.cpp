#include "compile/index_map.h"

namespace fathom::compile {
namespace {

// Axes whose extent is not the constant 1.
std::vector<size_t> long_axes(const Shape& shape) {
  std::vector<size_t> axes;
  for (size_t i = 0; i < shape.size(); ++i)
    if (!shape[i].is(1)) axes.push_back(i);
  return axes;
}

}  // namespace

IndexMap identity_map(size_t rank) {
  IndexMap map(rank);
  for (size_t i = 0; i < rank; ++i) map[i].axis = static_cast<int>(i);
  return map;
}

bool has_map(const Graph& graph, int id) {
  const Node& node = graph[id];
  if (!is_movement(node.op)) return false;
  if (node.op != Op::reshape) return true;
  const Shape &from = graph[node.operands[0]].type.shape, &to = node.type.shape;
  const auto of_from = long_axes(from), of_to = long_axes(to);
  if (of_from.size() != of_to.size()) return false;
  for (size_t i = 0; i < of_from.size(); ++i)
    if (from[of_from[i]] != to[of_to[i]]) return false;
  return true;
}

std::optional<IndexMap> through(const Graph& graph, int id, const IndexMap& map) {
  if (!has_map(graph, id)) return std::nullopt;
  const Node& node    = graph[id];
  const Attributes& a = node.attributes;
  const Shape& from   = graph[node.operands[0]].type.shape;
  IndexMap result(from.size());
  switch (node.op) {
    case Op::permute:
      for (size_t i = 0; i < map.size(); ++i) result[static_cast<size_t>(a.axes[i])] = map[i];
      break;
    case Op::broadcast:
      for (size_t i = 0; i < from.size(); ++i) result[i] = map[static_cast<size_t>(a.axes[i])];
      break;
    case Op::slice:
      for (size_t i = 0; i < from.size(); ++i)
        result[i] = {map[i].axis, a.starts[i] + a.steps[i] * map[i].start, a.steps[i] * map[i].step};
      break;
    default: {  // a reshape; an extent of 1 has no index but 0
      for (AxisMap& axis : result) axis = {0, 0, 0};
      const auto of_from = long_axes(from), of_to = long_axes(node.type.shape);
      for (size_t i = 0; i < of_from.size(); ++i) result[of_from[i]] = map[of_to[i]];
    }
  }
  return result;
}

}  // namespace fathom::compile
