#include "compile/gradient.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "compile/tensor.h"
#include "core/expect.h"

namespace fathom::compile {
namespace {

// A node of the forward graph, and the gradient dy of its result.
struct Backward {
  const Node& node;
  std::vector<Tensor> x;  // operands
  Tensor y, dy;
};

// Repeats a reduced tensor along the axes that it lost.
Tensor along_reduced(const Backward& b, const Tensor& reduced) {
  std::vector<int64_t> kept;
  for (int64_t axis = 0; axis < b.x[0].rank(); ++axis)
    if (!std::ranges::binary_search(b.node.attributes.axes, axis)) kept.push_back(axis);
  return broadcast(reduced, b.x[0].shape(), kept);
}

std::vector<Tensor> of_reduce_max(const Backward& b) {
  const Tensor largest = 1 - greater(along_reduced(b, b.y), b.x[0]);
  return {largest * along_reduced(b, b.dy / sum(largest, b.node.attributes.axes))};
}

std::vector<Tensor> of_permute(const Backward& b) {
  const std::vector<int64_t>& axes = b.node.attributes.axes;
  std::vector<int64_t> back(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) back[static_cast<size_t>(axes[i])] = static_cast<int64_t>(i);
  return {permute(b.dy, back)};
}

std::vector<Tensor> of_broadcast(const Backward& b) {
  std::vector<int64_t> repeated;
  for (int64_t axis = 0; axis < b.dy.rank(); ++axis)
    if (!std::ranges::binary_search(b.node.attributes.axes, axis)) repeated.push_back(axis);
  return {repeated.empty() ? b.dy : sum(b.dy, repeated)};
}

// y = x w^T: dx = dy w, dw = dy^T x.
std::vector<Tensor> of_matmul(const Backward& b) {
  const Tensor &x = b.x[0], &w = b.x[1];
  const Tensor dx = matmul(b.dy, permute(w, {1, 0}));
  const Tensor dw = matmul(permute(b.dy, {1, 0}), permute(x.to(DType::bf16), {1, 0}));
  return {dx.to(x.dtype()), dw.to(w.dtype())};
}

// Gradients of the operands, one each.
struct Rule {
  Op op;
  std::vector<Tensor> (*gradients)(const Backward&);
};

using Gradients     = std::vector<Tensor>;
const Rule kRules[] = {
    {Op::neg, [](const Backward& b) -> Gradients { return {-b.dy}; }},
    {Op::abs,
     [](const Backward& b) -> Gradients { return {b.dy * (greater(b.x[0], 0) - greater(0, b.x[0]))}; }},
    {Op::exp, [](const Backward& b) -> Gradients { return {b.dy * b.y}; }},
    {Op::sqrt, [](const Backward& b) -> Gradients { return {0.5 * b.dy / b.y}; }},
    {Op::rsqrt, [](const Backward& b) -> Gradients { return {-0.5 * b.dy * b.y * b.y * b.y}; }},
    {Op::sigmoid, [](const Backward& b) -> Gradients { return {b.dy * b.y * (1 - b.y)}; }},
    {Op::tanh, [](const Backward& b) -> Gradients { return {b.dy * (1 - b.y * b.y)}; }},
    {Op::add,
     [](const Backward& b) -> Gradients {
       return {b.dy, b.dy};
     }},
    {Op::sub,
     [](const Backward& b) -> Gradients {
       return {b.dy, -b.dy};
     }},
    {Op::mul,
     [](const Backward& b) -> Gradients {
       return {b.dy * b.x[1], b.dy * b.x[0]};
     }},
    {Op::div,
     [](const Backward& b) -> Gradients {
       const Tensor dx = b.dy / b.x[1];
       return {dx, -(dx * b.y)};
     }},
    {Op::min,
     [](const Backward& b) -> Gradients {
       const Tensor first = greater(b.x[1], b.x[0]);
       return {b.dy * first, b.dy * (1 - first)};
     }},
    {Op::max,
     [](const Backward& b) -> Gradients {
       const Tensor first = greater(b.x[0], b.x[1]);
       return {b.dy * first, b.dy * (1 - first)};
     }},
    {Op::cast, [](const Backward& b) -> Gradients { return {b.dy.to(b.x[0].dtype())}; }},
    {Op::sum, [](const Backward& b) -> Gradients { return {along_reduced(b, b.dy)}; }},
    {Op::reduce_max, of_reduce_max},
    {Op::reshape, [](const Backward& b) -> Gradients { return {reshape(b.dy, b.x[0].shape())}; }},
    {Op::permute, of_permute},
    {Op::broadcast, of_broadcast},
    {Op::slice,
     [](const Backward& b) -> Gradients {
       return {pad(b.dy, b.x[0].shape(), b.node.attributes.starts, b.node.attributes.steps)};
     }},
    {Op::pad,
     [](const Backward& b) -> Gradients {
       return {slice(b.dy, b.x[0].shape(), b.node.attributes.starts, b.node.attributes.steps)};
     }},
    {Op::matmul, of_matmul},
};

class Gradient {
 public:
  explicit Gradient(const Graph& forward) : forward_(forward), capture_{.graph = forward} {
    capture_.graph.regions.clear();  // the halves are fused together
  }

  Graph run(const std::string& output, const std::vector<std::string>& inputs) {
    const int y = output_called(output);
    std::vector<int> xs;
    for (const std::string& name : inputs) xs.push_back(input_called(name));

    find_active(xs);
    gradients_.resize(forward_.nodes.size());
    add(y,
        tensor(capture_.graph.add(
            {.op = Op::input, .type = forward_[y].type, .name = "d" + output, .place = forward_[y].place})));
    for (int id = y; id >= 0; --id)
      if (active_[static_cast<size_t>(id)] && gradients_[static_cast<size_t>(id)]) propagate(id);
    for (size_t i = 0; i < xs.size(); ++i)
      capture_.graph.outputs.push_back({"d" + inputs[i], gradient_or_zeros(xs[i]).node()});

    const Status status = verify(capture_.graph);
    if (!status) throw ContractError(fmt::format("gradient of '{}': {}", output, status.error().message));
    return std::move(capture_.graph);
  }

 private:
  Tensor tensor(int id) { return {&capture_, id}; }

  int output_called(const std::string& name) const {
    std::vector<std::string> known;
    for (const Output& output : forward_.outputs) {
      if (output.name == name) return output.node;
      known.push_back(output.name);
    }
    throw ContractError(fmt::format("gradient: {} has no output '{}'; it has {}", forward_.name, name,
                                    fmt::join(known, ", ")));
  }
  int input_called(const std::string& name) const {
    std::vector<std::string> known;
    for (const int id : forward_.inputs()) {
      if (forward_[id].name == name) return id;
      known.push_back(forward_[id].name);
    }
    throw ContractError(fmt::format("gradient: {} has no input '{}'; it has {}", forward_.name, name,
                                    fmt::join(known, ", ")));
  }

  // Nodes that depend on an input whose gradient is asked for.
  void find_active(const std::vector<int>& xs) {
    active_.resize(forward_.nodes.size());
    for (const int x : xs) active_[static_cast<size_t>(x)] = true;
    for (int id = 0; id < forward_.size(); ++id)
      for (const int operand : forward_[id].operands)
        if (active_[static_cast<size_t>(operand)]) active_[static_cast<size_t>(id)] = true;
  }

  // A node that several read has the sum of their gradients, the last reader's first.
  void add(int id, const Tensor& gradient) {
    std::optional<Tensor>& sum = gradients_[static_cast<size_t>(id)];
    sum                        = sum ? *sum + gradient : gradient;
  }

  void propagate(int id) {
    const Node& node = forward_[id];
    if (node.op == Op::input) return;
    const auto rule = std::ranges::find(kRules, node.op, &Rule::op);
    if (rule == std::end(kRules))
      throw ContractError(
          fmt::format("gradient: {} has no rule; add one to src/compile/gradient.cpp, or keep "
                      "it off the way from the inputs to the output",
                      describe(forward_, id)));
    const int first = capture_.graph.size();
    Backward backward{node, {}, tensor(id), *gradients_[static_cast<size_t>(id)]};
    for (const int operand : node.operands) backward.x.push_back(tensor(operand));
    const Gradients of_operands = rule->gradients(backward);
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (active_[static_cast<size_t>(node.operands[i])]) add(node.operands[i], of_operands[i]);
    // Its gradient was written on the line that wrote the node.
    for (int made = first; made < capture_.graph.size(); ++made)
      capture_.graph.nodes[static_cast<size_t>(made)].place = node.place;
  }

  Tensor gradient_or_zeros(int x) {
    if (const auto& gradient = gradients_[static_cast<size_t>(x)]) return *gradient;
    const Type& type = forward_[x].type;
    const int zero   = capture_.graph.add({.op = Op::constant, .type = {type.dtype, {}}});
    return broadcast(tensor(zero), type.shape, {},
                     Here(forward_[x].place.file.c_str(), forward_[x].place.line));
  }

  const Graph& forward_;
  Capture capture_;  // the joint graph: the forward graph's nodes keep their positions
  std::vector<bool> active_;
  std::vector<std::optional<Tensor>> gradients_;  // of forward nodes
};

}  // namespace

Graph gradient(const Graph& graph, const std::string& output, const std::vector<std::string>& inputs) {
  return Gradient(graph).run(output, inputs);
}

}  // namespace fathom::compile
