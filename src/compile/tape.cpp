#include "compile/tape.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compile/interpret.h"

namespace fathom::compile {
namespace {

// Nodes that need memory of their own, row by row, because their reader takes a pointer: a reshape that is an
// alias, a pad, a matmul, the caller.
std::vector<bool> in_memory(const Graph& graph) {
  std::vector<bool> needed(graph.nodes.size());
  for (const Output& output : graph.outputs) needed[static_cast<size_t>(output.node)] = true;
  for (int id = 0; id < graph.size(); ++id)
    if (graph[id].op == Op::matmul || graph[id].op == Op::pad ||
        (graph[id].op == Op::reshape && !has_map(graph, id)))
      for (const int operand : graph[id].operands) needed[static_cast<size_t>(operand)] = true;
  return needed;
}

class TapeMaker {
 public:
  TapeMaker(const Graph& graph, const std::vector<Role>& roles, std::span<const int> nodes,
            const std::vector<bool>& stored)
      : graph_(graph), roles_(roles), nodes_(nodes), stored_(stored) {}

  Result<Tape> make() {
    try {
      choose_space();
      for (const int id : nodes_) {
        if (!stored_[static_cast<size_t>(id)]) continue;
        const IndexMap map = map_of_root(id);
        const int value    = computed(id, map);
        emit({.kind    = Instruction::Kind::store,
              .per_row = tape_.code[static_cast<size_t>(value)].per_row && spans_rows(map),
              .a       = value,
              .leaf    = leaf(id, map, true)});
      }
      if (tape_.code.size() > kTapeLength)
        refuse(fmt::format("{} instructions are more than {}", tape_.code.size(), kTapeLength));
      if (tape_.leaves.size() > kTapeLeaves)
        refuse(fmt::format("{} tensors are more than {}", tape_.leaves.size(), kTapeLeaves));
    } catch (const Error& reason) {
      return reason;
    }
    return std::move(tape_);
  }

 private:
  [[noreturn]] static void refuse(std::string reason) { throw Error{std::move(reason)}; }

  bool is_member(int id) const { return std::binary_search(nodes_.begin(), nodes_.end(), id); }
  const Shape& shape(int id) const { return graph_[id].type.shape; }

  // Rows are what the first reduction reduces; without one, the last axis.
  void choose_space() {
    for (const int id : nodes_) {
      if (!is_reduction(graph_[id].op)) continue;
      const Node& node = graph_[id];
      shape_           = shape(node.operands[0]);
      tape_.reduces    = true;
      tape_.outer      = node.type.shape;
      map_.resize(shape_.size());
      int outer = 0, inner = static_cast<int>(tape_.outer.size());
      for (size_t axis = 0; axis < shape_.size(); ++axis) {
        const bool reduced = std::binary_search(node.attributes.axes.begin(), node.attributes.axes.end(),
                                                static_cast<int64_t>(axis));
        if (reduced) tape_.inner.push_back(shape_[axis]);
        map_[axis].axis = reduced ? inner++ : outer++;
      }
      if (nodes_.size() > 1 && row_bound() > kLongestRow)
        refuse(fmt::format("a row may have more than {} elements", kLongestRow));
      return;
    }
    const int root =
        *std::find_if(nodes_.begin(), nodes_.end(), [&](int id) { return stored_[static_cast<size_t>(id)]; });
    shape_      = shape(root);
    map_        = identity_map(shape_.size());
    tape_.outer = shape_;
    if (!shape_.empty()) {
      tape_.inner = {shape_.back()};
      tape_.outer.pop_back();
    }
  }

  int64_t row_bound() const {
    std::vector<int64_t> largest;
    for (const Symbol& symbol : graph_.symbols) largest.push_back(symbol.max);
    return product(tape_.inner).value(largest);
  }

  bool spans_rows(const IndexMap& map) const {
    return std::all_of(map.begin(), map.end(), [&](const AxisMap& axis) {
      return axis.step == 0 || axis.axis < static_cast<int>(tape_.outer.size());
    });
  }

  // One map for all that mean the same: an extent of 1 has no index but 0.
  IndexMap normal(int id, IndexMap map) const {
    for (size_t i = 0; i < map.size(); ++i)
      if (shape(id)[i].is(1)) map[i] = {0, map[i].start, 0};
    return map;
  }

  // Where a tensor with a number for each row lies, which may have more extents of 1 than the rows have.
  std::optional<IndexMap> map_of_rows(const Shape& shape) const {
    IndexMap map(shape.size(), {0, 0, 0});
    size_t outer           = 0;
    const auto skip_of_one = [&] {
      while (outer < tape_.outer.size() && tape_.outer[outer].is(1)) ++outer;
    };
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i].is(1)) continue;
      skip_of_one();
      if (outer == tape_.outer.size() || shape[i] != tape_.outer[outer]) return std::nullopt;
      map[i] = {static_cast<int>(outer++), 0, 1};
    }
    skip_of_one();
    return outer == tape_.outer.size() ? std::optional(map) : std::nullopt;
  }

  // Where a stored node lies in the space.
  IndexMap map_of_root(int id) const {
    if (tape_.reduces)
      if (const auto map = map_of_rows(shape(id))) return *map;
    if (shape(id) == shape_) return normal(id, map_);
    refuse(fmt::format("results {} and {} have different shapes", text(shape(id), graph_.symbols),
                       text(shape_, graph_.symbols)));
  }

  int emit(const Instruction& instruction) {
    tape_.code.push_back(instruction);
    return static_cast<int>(tape_.code.size()) - 1;
  }

  int leaf(int id, const IndexMap& map, bool written) {
    for (size_t i = 0; i < tape_.leaves.size(); ++i)
      if (tape_.leaves[i].node == id && tape_.leaves[i].map == map && tape_.leaves[i].written == written)
        return static_cast<int>(i);
    tape_.leaves.push_back({id, map, written});
    return static_cast<int>(tape_.leaves.size()) - 1;
  }

  // The instruction whose value is this node's at `map`.
  int computed(int id, IndexMap map) {
    map            = normal(id, std::move(map));
    const auto key = std::pair(id, map);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    const int value = is_member(id) ? member(id, map) : outside(id, map);
    known_[key]     = value;
    return value;
  }

  int constant(const Node& node) {
    return emit({.kind     = Instruction::Kind::constant,
                 .per_row  = true,
                 .constant = typed_pointwise(Op::cast, node.type.dtype, node.attributes.value, 0)});
  }

  int outside(int id, const IndexMap& map) {
    const Node& node = graph_[id];
    if (node.op == Op::constant) return constant(node);
    if (roles_[static_cast<size_t>(id)] == Role::view)
      return computed(node.operands[0], *through(graph_, id, map));
    if (roles_[static_cast<size_t>(id)] == Role::alias) {
      int base = id;
      while (roles_[static_cast<size_t>(base)] == Role::alias) base = graph_[base].operands[0];
      if (is_member(base))
        refuse(fmt::format("{} needs {} in memory", describe(graph_, id), describe(graph_, base)));
    }
    return emit({.kind = Instruction::Kind::load, .per_row = spans_rows(map), .leaf = leaf(id, map, false)});
  }

  int member(int id, const IndexMap& map) {
    const Node& node = graph_[id];
    const bool first = seen_.insert(id).second;
    if (stored_[static_cast<size_t>(id)] && map != map_of_root(id))
      refuse(fmt::format("{} is read at other indices than it is stored at", describe(graph_, id)));
    if (!first && row(node.op).flops > kRecomputable)
      refuse(fmt::format("{} would be computed twice", describe(graph_, id)));
    if (is_reduction(node.op)) return reduction(id, map);
    const bool to_bf16 = node.type.dtype == DType::bf16;
    if (node.op == Op::constant) return constant(node);
    // A copy of a view, or a cast to fp32: the value is the operand's.
    if (is_movement(node.op)) return computed(node.operands[0], *through(graph_, id, map));
    if (node.op == Op::cast && !to_bf16) return computed(node.operands[0], map);
    Instruction instruction{.kind    = Instruction::Kind::compute,
                            .op      = node.op,
                            .per_row = spans_rows(map),
                            .a       = computed(node.operands.front(), map),
                            .to_bf16 = to_bf16};
    if (node.operands.size() == 2) instruction.b = computed(node.operands.back(), map);
    return emit(instruction);
  }

  int reduction(int id, const IndexMap& map) {
    const Node& node = graph_[id];
    if (node.type.shape != tape_.outer || map != normal(id, identity_map(tape_.outer.size())))
      refuse("reductions have different axes");
    const Shape& from = shape(node.operands[0]);
    IndexMap operand(from.size());
    size_t kept = 0;
    Shape reduced;
    for (size_t axis = 0; axis < from.size(); ++axis) {
      if (!std::binary_search(node.attributes.axes.begin(), node.attributes.axes.end(),
                              static_cast<int64_t>(axis))) {
        operand[axis] = map[kept++];
        continue;
      }
      operand[axis].axis = static_cast<int>(tape_.outer.size() + reduced.size());
      reduced.push_back(from[axis]);
    }
    if (reduced != tape_.inner) refuse("reductions have rows of different lengths");
    const int value = computed(node.operands[0], operand);
    return emit({.kind    = Instruction::Kind::reduce,
                 .op      = node.op,
                 .per_row = true,
                 .a       = value,
                 .to_bf16 = node.type.dtype == DType::bf16});
  }

  const Graph& graph_;
  const std::vector<Role>& roles_;
  std::span<const int> nodes_;
  const std::vector<bool>& stored_;
  Tape tape_;
  Shape shape_;   // of stored nodes that have a value for each element of the space
  IndexMap map_;  // and where they lie in it
  std::map<std::pair<int, IndexMap>, int> known_;
  std::set<int> seen_;
};

}  // namespace

Shape Tape::space() const {
  Shape space = outer;
  space.insert(space.end(), inner.begin(), inner.end());
  return space;
}

std::vector<Role> roles_of(const Graph& graph) {
  const std::vector<bool> needed = in_memory(graph);
  std::vector<Role> roles;
  for (int id = 0; id < graph.size(); ++id) {
    const Op op    = graph[id].op;
    const bool own = needed[static_cast<size_t>(id)];
    if (op == Op::input)
      roles.push_back(Role::stored_elsewhere);
    else if (op == Op::constant)
      roles.push_back(own ? Role::kernel : Role::stored_elsewhere);
    else if (!is_movement(op))
      roles.push_back(Role::kernel);
    else
      roles.push_back(!has_map(graph, id) ? Role::alias : own ? Role::kernel : Role::view);
  }
  return roles;
}

Result<Tape> make_tape(const Graph& graph, const std::vector<Role>& roles, std::span<const int> nodes,
                       const std::vector<bool>& stored) {
  return TapeMaker(graph, roles, nodes, stored).make();
}

double bytes_of(const Graph& graph, const Tape& tape, std::span<const int64_t> symbols) {
  const Shape space = tape.space();
  double bytes      = 0;
  for (const Leaf& leaf : tape.leaves) {
    std::set<int> axes;
    double elements = 1;
    for (const AxisMap& axis : leaf.map)
      if (axis.step != 0 && axes.insert(axis.axis).second)
        elements *= static_cast<double>(space[static_cast<size_t>(axis.axis)].value(symbols));
    bytes += elements * traits(graph[leaf.node].type.dtype).bits / 8;
  }
  return bytes;
}

}  // namespace fathom::compile
