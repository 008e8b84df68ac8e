#include "compile/canonical.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "compile/interpret.h"

namespace fathom::compile {
namespace {

class Canonical {
 public:
  explicit Canonical(const Graph& graph) : from_(graph) {
    to_.name    = graph.name;
    to_.symbols = graph.symbols;
  }

  Graph run() {
    std::vector<int> now;  // where each old node is in the new graph
    for (const Node& old : from_.nodes) {
      Node node = old;
      for (int& operand : node.operands) operand = now[static_cast<size_t>(operand)];
      now.push_back(simplified(std::move(node)));
    }
    for (const Output& output : from_.outputs)
      to_.outputs.push_back({output.name, now[static_cast<size_t>(output.node)]});
    return without_unused();
  }

 private:
  const Node& at(int id) const { return to_[id]; }
  const Node& operand(const Node& node, size_t i = 0) const { return at(node.operands[i]); }
  bool is(int id, Op op) const { return at(id).op == op; }

  // The number that fills a tensor: a constant, or one that was broadcast.
  std::optional<double> number(int id) const {
    if (is(id, Op::broadcast)) id = at(id).operands[0];
    if (!is(id, Op::constant)) return std::nullopt;
    return typed_pointwise(Op::cast, at(id).type.dtype, at(id).attributes.value, 0);
  }

  int simplified(Node node) {
    if (const auto same = folded(node)) return *same;
    switch (row(node.op).kind) {
      case OpKind::pointwise:
        if (const auto same = pointwise(node)) return *same;
        break;
      case OpKind::movement:
        if (const auto same = movement(node)) return *same;
        break;
      case OpKind::reduction:
        // Of one number; a sum would make +0 of -0.
        if (node.op == Op::reduce_max && product(operand(node).type.shape) == product(node.type.shape)) {
          Node moved{Op::reshape, node.type, node.operands, {}, {}, node.place};
          return simplified(std::move(moved));
        }
        break;
      default:
        break;
    }
    return unique(std::move(node));
  }

  // What is computed from numbers alone is a number. libm's functions stay: a back end has its own.
  std::optional<int> folded(const Node& node) {
    if ((!is_pointwise(node.op) && !is_movement(node.op)) || node.op == Op::exp || node.op == Op::sigmoid ||
        node.op == Op::tanh)
      return std::nullopt;
    const auto a = number(node.operands.front()), b = number(node.operands.back());
    if (!a || !b) return std::nullopt;
    // A node that is in this form already.
    if (node.op == Op::broadcast && operand(node).op == Op::constant && !node.type.shape.empty())
      return std::nullopt;
    const double value = is_movement(node.op) ? *a : typed_pointwise(node.op, node.type.dtype, *a, *b);
    const int constant = unique({.op         = Op::constant,
                                 .type       = {node.type.dtype, {}},
                                 .attributes = {.value = value},
                                 .place      = node.place});
    if (node.type.shape.empty()) return constant;
    return unique({.op = Op::broadcast, .type = node.type, .operands = {constant}, .place = node.place});
  }

  std::optional<int> pointwise(Node& node) {
    const int a = node.operands.front(), b = node.operands.back();
    const auto of_a = number(a), of_b = number(b);
    const auto is_minus_zero = [](const auto& value) { return value && *value == 0 && std::signbit(*value); };
    const auto is_zero = [](const auto& value) { return value && *value == 0 && !std::signbit(*value); };
    switch (node.op) {
      case Op::add:
        if (is_minus_zero(of_b)) return a;
        if (is_minus_zero(of_a)) return b;
        break;
      case Op::sub:
        if (is_zero(of_b)) return a;
        break;
      case Op::mul:
        if (of_b == 1.0) return a;
        if (of_a == 1.0) return b;
        break;
      case Op::div:
        if (of_b == 1.0) return a;
        break;
      case Op::min:
      case Op::max:
        if (a == b) return a;
        break;
      case Op::neg:
        if (is(a, Op::neg)) return at(a).operands[0];
        break;
      case Op::abs:
        if (is(a, Op::abs)) return a;
        if (is(a, Op::neg)) node.operands = at(a).operands;
        break;
      case Op::cast:
        return cast(node);
      default:
        break;
    }
    if (node.op == Op::add || node.op == Op::mul) std::sort(node.operands.begin(), node.operands.end());
    return std::nullopt;
  }

  std::optional<int> cast(const Node& node) const {
    const int a = node.operands[0];
    if (at(a).type.dtype == node.type.dtype) return a;
    // Widened and narrowed again, exactly.
    if (is(a, Op::cast) && operand(at(a)).type.dtype == DType::bf16 && node.type.dtype == DType::bf16)
      return at(a).operands[0];
    return std::nullopt;
  }

  // Two movements of a kind are one.
  std::optional<int> movement(Node& node) {
    while (operand(node).op == node.op) {
      const Node& inner   = operand(node);
      const Attributes in = inner.attributes, out = node.attributes;
      Attributes& both = node.attributes;
      if (node.op == Op::permute)
        for (size_t i = 0; i < out.axes.size(); ++i) both.axes[i] = in.axes[static_cast<size_t>(out.axes[i])];
      if (node.op == Op::broadcast) {
        both.axes.clear();
        for (const int64_t axis : in.axes) both.axes.push_back(out.axes[static_cast<size_t>(axis)]);
      }
      for (size_t i = 0; i < out.steps.size(); ++i) {
        both.starts[i] = in.starts[i] + in.steps[i] * out.starts[i];
        both.steps[i]  = in.steps[i] * out.steps[i];
      }
      node.operands = std::vector<int>(inner.operands);
    }
    // Ascending axes that are all there, or a slice of everything: the shape alone decides.
    const bool moves =
        node.op == Op::permute && !std::is_sorted(node.attributes.axes.begin(), node.attributes.axes.end());
    if (!moves && operand(node).type.shape == node.type.shape) return node.operands[0];
    return std::nullopt;
  }

  int unique(Node node) {
    if (node.op == Op::input) return to_.add(std::move(node));
    std::vector<std::pair<int64_t, std::vector<int>>> shape;
    for (const Extent& extent : node.type.shape) shape.emplace_back(extent.coefficient(), extent.symbols());
    const Attributes& a = node.attributes;
    auto key = std::tuple(node.op, node.type.dtype, std::move(shape), node.operands, a.axes, a.starts,
                          a.steps, std::bit_cast<int64_t>(a.value));
    const auto [found, added] = known_.try_emplace(std::move(key), to_.size());
    if (added) to_.add(std::move(node));
    return found->second;
  }

  Graph without_unused() const {
    std::vector<bool> used(to_.nodes.size());
    for (const Output& output : to_.outputs) used[static_cast<size_t>(output.node)] = true;
    for (int id = to_.size(); id-- > 0;) {
      if (at(id).op == Op::input) used[static_cast<size_t>(id)] = true;
      if (used[static_cast<size_t>(id)])
        for (const int operand : at(id).operands) used[static_cast<size_t>(operand)] = true;
    }
    Graph kept{.name = to_.name, .symbols = to_.symbols};
    std::vector<int> now(to_.nodes.size(), -1);
    for (int id = 0; id < to_.size(); ++id) {
      if (!used[static_cast<size_t>(id)]) continue;
      Node node = at(id);
      for (int& operand : node.operands) operand = now[static_cast<size_t>(operand)];
      now[static_cast<size_t>(id)] = kept.add(std::move(node));
    }
    for (const Output& output : to_.outputs)
      kept.outputs.push_back({output.name, now[static_cast<size_t>(output.node)]});
    return kept;
  }

  const Graph& from_;
  Graph to_;
  std::map<std::tuple<Op, DType, std::vector<std::pair<int64_t, std::vector<int>>>, std::vector<int>,
                      std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>, int64_t>,
           int>
      known_;
};

}  // namespace

Graph canonical(const Graph& graph) {
  Graph result = Canonical(graph).run();
  expect_verified(result, "canonical");
  return result;
}

}  // namespace fathom::compile
