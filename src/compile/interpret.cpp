#include "compile/interpret.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/expect.h"

namespace fathom::compile {
namespace {

using Index = std::vector<int64_t>;

double rounded(double value, DType dtype) {
  const float single = static_cast<float>(value);
  return dtype == DType::bf16 ? static_cast<float>(bf16(single)) : single;
}

// Calls f(index, position) for every index of a row-major array.
template <class F>
void for_each_index(const Index& extents, F&& f) {
  Index index(extents.size(), 0);
  for (int64_t position = 0, n = count(extents); position < n; ++position) {
    f(index, position);
    for (size_t axis = extents.size(); axis-- > 0;) {
      if (++index[axis] < extents[axis]) break;
      index[axis] = 0;
    }
  }
}

int64_t position_of(const Index& index, const Index& extents) {
  int64_t position = 0;
  for (size_t axis = 0; axis < extents.size(); ++axis) position = position * extents[axis] + index[axis];
  return position;
}

class Interpreter {
 public:
  Interpreter(const Graph& graph, std::span<const int64_t> symbols,
              const std::map<std::string, Numbers>& inputs, Arithmetic arithmetic)
      : graph_(graph), symbols_(symbols), inputs_(inputs), arithmetic_(arithmetic) {}

  std::map<std::string, Numbers> run() {
    for (int id = 0; id < graph_.size(); ++id) numbers_.push_back(evaluate(id));
    std::map<std::string, Numbers> outputs;
    for (const Output& output : graph_.outputs)
      outputs[output.name] = numbers_[static_cast<size_t>(output.node)];
    return outputs;
  }

 private:
  Index extents(int id) const { return values(graph_[id].type.shape, symbols_); }
  const Numbers& operand(const Node& node, size_t i) const {
    return numbers_[static_cast<size_t>(node.operands[i])];
  }
  double round(double value, DType dtype) const {
    return arithmetic_ == Arithmetic::fp64 && dtype == DType::fp32 ? value : rounded(value, dtype);
  }

  Numbers evaluate(int id) const {
    const Node& node = graph_[id];
    switch (row(node.op).kind) {
      case OpKind::source:
        return source(id);
      case OpKind::pointwise:
        return pointwise(id);
      case OpKind::reduction:
        return reduction(id);
      case OpKind::movement:
        return movement(id);
      case OpKind::pad:
        return pad(id);
      case OpKind::matmul:
        return matmul(id);
    }
    return {};
  }

  Numbers source(int id) const {
    const Node& node = graph_[id];
    if (node.op == Op::constant) return {round(node.attributes.value, node.type.dtype)};
    if (node.op == Op::iota) {
      Numbers result;
      const auto axis = static_cast<size_t>(node.attributes.axes[0]);
      for_each_index(extents(id), [&](const Index& index, int64_t) {
        result.push_back(round(static_cast<double>(index[axis]), node.type.dtype));
      });
      return result;
    }
    const auto found = inputs_.find(node.name);
    FATHOM_EXPECT(found != inputs_.end(), fmt::format("{}: input '{}' is missing", graph_.name, node.name));
    FATHOM_EXPECT(static_cast<int64_t>(found->second.size()) == count(extents(id)),
                  fmt::format("{}: input '{}' is {}, and has {} numbers", graph_.name, node.name,
                              text(node.type.shape, graph_.symbols), found->second.size()));
    return found->second;
  }

  Numbers pointwise(int id) const {
    const Node& node = graph_[id];
    const Numbers &a = operand(node, 0), &b = operand(node, node.operands.size() - 1);
    Numbers result(a.size());
    for (size_t i = 0; i < a.size(); ++i)
      result[i] = arithmetic_ == Arithmetic::typed
                      ? typed_pointwise(node.op, node.type.dtype, a[i], b[i])
                      : round(pointwise_value(node.op, a[i], b[i]), node.type.dtype);
    return result;
  }

  Numbers reduction(int id) const {
    const Node& node = graph_[id];
    const Index to   = extents(id);
    Numbers result(static_cast<size_t>(count(to)),
                   node.op == Op::sum ? 0.0 : -std::numeric_limits<double>::infinity());
    const Numbers& from = operand(node, 0);
    for_each_index(extents(node.operands[0]), [&](const Index& index, int64_t position) {
      Index kept;
      for (size_t axis = 0; axis < index.size(); ++axis)
        if (!std::binary_search(node.attributes.axes.begin(), node.attributes.axes.end(),
                                static_cast<int64_t>(axis)))
          kept.push_back(index[axis]);
      double& into       = result[static_cast<size_t>(position_of(kept, to))];
      const double value = from[static_cast<size_t>(position)];
      into               = node.op == Op::sum ? into + value : pointwise_value(Op::max, into, value);
    });
    for (double& value : result) value = round(value, node.type.dtype);
    return result;
  }

  Numbers movement(int id) const {
    const Node& node    = graph_[id];
    const Numbers& from = operand(node, 0);
    if (node.op == Op::reshape) return from;
    const Attributes& a = node.attributes;
    const Index shape   = extents(node.operands[0]);
    Numbers result;
    for_each_index(extents(id), [&](const Index& index, int64_t) {
      Index source(shape.size());
      for (size_t axis = 0; axis < index.size(); ++axis)
        if (node.op == Op::permute)
          source[static_cast<size_t>(a.axes[axis])] = index[axis];
        else if (node.op == Op::slice)
          source[axis] = a.starts[axis] + a.steps[axis] * index[axis];
      if (node.op == Op::broadcast)
        for (size_t axis = 0; axis < shape.size(); ++axis)
          source[axis] = index[static_cast<size_t>(a.axes[axis])];
      result.push_back(from[static_cast<size_t>(position_of(source, shape))]);
    });
    return result;
  }

  Numbers pad(int id) const {
    const Node& node = graph_[id];
    const Index to   = extents(id);
    Numbers result(static_cast<size_t>(count(to)));
    for_each_index(extents(node.operands[0]), [&](Index index, int64_t position) {
      for (size_t axis = 0; axis < index.size(); ++axis)
        index[axis] = node.attributes.starts[axis] + node.attributes.steps[axis] * index[axis];
      result[static_cast<size_t>(position_of(index, to))] = operand(node, 0)[static_cast<size_t>(position)];
    });
    return result;
  }

  Numbers matmul(int id) const {
    const Node& node = graph_[id];
    const Index x = extents(node.operands[0]), y = extents(id);
    Numbers result;
    for_each_index(y, [&](const Index& index, int64_t) {
      double sum = 0;
      for (int64_t k = 0; k < x[1]; ++k)
        sum += operand(node, 0)[static_cast<size_t>(index[0] * x[1] + k)] *
               operand(node, 1)[static_cast<size_t>(index[1] * x[1] + k)];
      result.push_back(round(sum, node.type.dtype));
    });
    return result;
  }

  const Graph& graph_;
  std::span<const int64_t> symbols_;
  const std::map<std::string, Numbers>& inputs_;
  Arithmetic arithmetic_;
  std::vector<Numbers> numbers_;
};

}  // namespace

double typed_pointwise(Op op, DType dtype, double a, double b) {
  return rounded(pointwise_value(op, static_cast<float>(a), static_cast<float>(b)), dtype);
}

std::map<std::string, Numbers> interpret(const Graph& graph, std::span<const int64_t> symbols,
                                         const std::map<std::string, Numbers>& inputs,
                                         Arithmetic arithmetic) {
  return Interpreter(graph, symbols, inputs, arithmetic).run();
}

}  // namespace fathom::compile
