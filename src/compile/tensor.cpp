#include "compile/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/expect.h"

namespace fathom::compile {
namespace {

Tensor add_node(Capture& capture, Node node, const Here& here) {
  Graph& graph = capture.graph;
  node.place   = here.place();
  const Status status =
      check_type(node.op, graph.operand_types(node), node.attributes, node.type, graph.symbols);
  if (!status)
    throw ContractError(
        fmt::format("{} ({}): {}", row(node.op).name, node.place.text(), status.error().message));
  return {&capture, graph.add(std::move(node))};
}

Tensor add_node(const Tensor& x, Op op, Type type, Attributes attributes, const Here& here) {
  return add_node(
      x.capture(),
      {.op = op, .type = std::move(type), .operands = {x.node()}, .attributes = std::move(attributes)}, here);
}

// x along every axis of `shape`, by numpy's rule.
Tensor broadcast_to(const Tensor& x, const Shape& shape, const Here& here) {
  if (x.shape() == shape) return x;
  const size_t missing = shape.size() - std::min(x.shape().size(), shape.size());
  Shape kept;
  std::vector<int64_t> axes;
  for (size_t i = 0; i < x.shape().size(); ++i)
    if (i + missing >= shape.size() || !x.shape()[i].is(1) || shape[i + missing].is(1)) {
      kept.push_back(x.shape()[i]);
      axes.push_back(static_cast<int64_t>(i + missing));
    }
  return broadcast(kept == x.shape() ? x : reshape(x, kept, here), shape, axes, here);
}

Shape common_shape(const Shape& a, const Shape& b) {
  Shape shape         = a.size() < b.size() ? b : a;
  const Shape& other  = a.size() < b.size() ? a : b;
  const size_t offset = shape.size() - other.size();
  for (size_t i = 0; i < other.size(); ++i)
    if (shape[i + offset].is(1)) shape[i + offset] = other[i];
  return shape;
}

Tensor constant(Capture& capture, double value, DType dtype, const Here& here) {
  return add_node(capture, {.op = Op::constant, .type = {dtype, {}}, .attributes = {.value = value}}, here);
}

Tensor unary(Op op, const Operand& x) {
  FATHOM_EXPECT(!x.is_number(), "a function of a number needs no graph: use std::");
  return add_node(x.tensor, op, {x.tensor.dtype(), x.tensor.shape()}, {}, x.here);
}

Tensor binary(Op op, const Operand& a, const Operand& b) {
  const Here& here     = a.here;
  const Tensor& tensor = a.is_number() ? b.tensor : a.tensor;
  const auto of        = [&](const Operand& operand) {
    return operand.is_number() ? constant(tensor.capture(), operand.number, tensor.dtype(), here)
                                      : operand.tensor;
  };
  Tensor x = of(a), y = of(b);
  FATHOM_EXPECT(&x.capture() == &y.capture(),
                fmt::format("{}: operands of two programs", here.place().text()));
  const Shape shape = common_shape(x.shape(), y.shape());
  x                 = broadcast_to(x, shape, here);
  y                 = broadcast_to(y, shape, here);
  return add_node(tensor.capture(), {.op = op, .type = {x.dtype(), shape}, .operands = {x.node(), y.node()}},
                  here);
}

Tensor reduce(Op op, const Tensor& x, std::vector<int64_t> axes, Keep keep, const Here& here) {
  for (int64_t& axis : axes) axis += axis < 0 ? x.rank() : 0;
  std::sort(axes.begin(), axes.end());
  Shape kept, ones;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!reduced) kept.push_back(x.shape()[static_cast<size_t>(i)]);
    ones.push_back(reduced ? Extent(1) : x.shape()[static_cast<size_t>(i)]);
  }
  const Tensor result = add_node(x, op, {x.dtype(), kept}, {.axes = std::move(axes)}, here);
  return keep == Keep::yes ? reshape(result, ones, here) : result;
}

}  // namespace

Place Here::place() const {
  const char* slash = std::strrchr(file, '/');
  return {slash ? slash + 1 : file, line};
}

Tensor::Tensor(Capture* capture, int node) : capture_(capture), node_(node) {
  if (!capture || !capture->reader || node < 0) return;
  const auto n = static_cast<size_t>(node);
  capture->handles.resize(std::max(capture->handles.size(), n + 1));
  handle_ = capture->handles[n].lock();
  if (!handle_) capture->handles[n] = handle_ = std::make_shared<const int>(node);
}

Tensor Tensor::to(DType dtype, const Here& here) const {
  return dtype == this->dtype() ? *this : add_node(*this, Op::cast, {dtype, shape()}, {}, here);
}

float Tensor::item(const Here& here) const {
  const Graph& graph = capture_->graph;
  const std::string because =
      fmt::format("{}: the host reads a value of {}", here.place().text(), describe(graph, node_));
  if (capture_->reader) {
    FATHOM_EXPECT(product(type().shape).is(1),
                  fmt::format("{}, of {}: item() is for one number", because, text(shape(), graph.symbols)));
    return capture_->reader(node_, because);
  }
  std::string message = fmt::format(
      "{}, which exists only in a run, so the graph of '{}' breaks here. Keep the value in the graph (min, "
      "max "
      "and arithmetic on tensors), make it an output and a second program of what follows, or let the trace "
      "go "
      "on (Breaks::segment)",
      because, graph.name);
  if (!capture_->collects_breaks) throw GraphBreak(message);
  capture_->breaks.push_back(std::move(message));
  return 1;
}

Tensor operator+(const Operand& a, const Operand& b) { return binary(Op::add, a, b); }
Tensor operator-(const Operand& a, const Operand& b) { return binary(Op::sub, a, b); }
Tensor operator*(const Operand& a, const Operand& b) { return binary(Op::mul, a, b); }
Tensor operator/(const Operand& a, const Operand& b) { return binary(Op::div, a, b); }
Tensor operator-(const Operand& a) { return unary(Op::neg, a); }
Tensor min(const Operand& a, const Operand& b) { return binary(Op::min, a, b); }
Tensor max(const Operand& a, const Operand& b) { return binary(Op::max, a, b); }
Tensor greater(const Operand& a, const Operand& b) { return binary(Op::greater, a, b); }
Tensor clamp(const Operand& x, double low, double high) {
  const Operand from_below(max(x, Operand(low)), x.here.file, x.here.line);
  return min(from_below, Operand(high));
}
Tensor abs(const Operand& x) { return unary(Op::abs, x); }
Tensor exp(const Operand& x) { return unary(Op::exp, x); }
Tensor sqrt(const Operand& x) { return unary(Op::sqrt, x); }
Tensor rsqrt(const Operand& x) { return unary(Op::rsqrt, x); }
Tensor sigmoid(const Operand& x) { return unary(Op::sigmoid, x); }
Tensor tanh(const Operand& x) { return unary(Op::tanh, x); }

Tensor sum(const Tensor& x, std::vector<int64_t> axes, Keep keep, const Here& here) {
  return reduce(Op::sum, x, std::move(axes), keep, here);
}
Tensor reduce_max(const Tensor& x, std::vector<int64_t> axes, Keep keep, const Here& here) {
  return reduce(Op::reduce_max, x, std::move(axes), keep, here);
}

Tensor mean(const Tensor& x, const Here& here) {
  FATHOM_EXPECT(x.rank() > 0 && x.shape().back().is_constant() && !x.shape().back().is(0),
                fmt::format("{}: a mean needs a constant last extent above 0", here.place().text()));
  const double count = static_cast<double>(x.shape().back().coefficient());
  return binary(Op::mul, Operand(sum(x, {-1}, Keep::yes, here), here.file, here.line), Operand(1 / count));
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, const Here& here) {
  const auto at      = [&](const Tensor& tensor) { return Operand(tensor, here.file, here.line); };
  const Tensor scale = rsqrt(at(at(mean(at(x) * at(x), here)) + eps));
  return at(at(x) * at(scale)) * at(weight);
}

Tensor reshape(const Tensor& x, Shape shape, const Here& here) {
  return add_node(x, Op::reshape, {x.dtype(), std::move(shape)}, {}, here);
}

Tensor permute(const Tensor& x, std::vector<int64_t> axes, const Here& here) {
  Shape shape;
  for (const int64_t axis : axes)
    if (axis >= 0 && axis < x.rank()) shape.push_back(x.shape()[static_cast<size_t>(axis)]);
  return add_node(x, Op::permute, {x.dtype(), std::move(shape)}, {.axes = std::move(axes)}, here);
}

Tensor broadcast(const Tensor& x, Shape shape, std::vector<int64_t> axes, const Here& here) {
  return add_node(x, Op::broadcast, {x.dtype(), std::move(shape)}, {.axes = std::move(axes)}, here);
}

Tensor slice(const Tensor& x, int64_t axis, int64_t start, int64_t length, int64_t step, const Here& here) {
  FATHOM_EXPECT(axis >= 0 && axis < x.rank(),
                fmt::format("{}: there is no axis {} of {}", here.place().text(), axis, x.rank()));
  Attributes attributes{.starts = std::vector<int64_t>(x.shape().size(), 0),
                        .steps  = std::vector<int64_t>(x.shape().size(), 1)};
  Shape shape                                  = x.shape();
  shape[static_cast<size_t>(axis)]             = length;
  attributes.starts[static_cast<size_t>(axis)] = start;
  attributes.steps[static_cast<size_t>(axis)]  = step;
  return add_node(x, Op::slice, {x.dtype(), std::move(shape)}, std::move(attributes), here);
}

Tensor slice(const Tensor& x, Shape shape, std::vector<int64_t> starts, std::vector<int64_t> steps,
             const Here& here) {
  return add_node(x, Op::slice, {x.dtype(), std::move(shape)},
                  {.starts = std::move(starts), .steps = std::move(steps)}, here);
}

Tensor pad(const Tensor& x, Shape shape, std::vector<int64_t> starts, std::vector<int64_t> steps,
           const Here& here) {
  return add_node(x, Op::pad, {x.dtype(), std::move(shape)},
                  {.starts = std::move(starts), .steps = std::move(steps)}, here);
}

std::pair<Tensor, Tensor> unzip(const Tensor& x, const Here& here) {
  FATHOM_EXPECT(x.rank() > 0 && x.shape().back().is_constant() && x.shape().back().coefficient() % 2 == 0,
                fmt::format("{}: unzip needs an even, constant last extent", here.place().text()));
  const int64_t half = x.shape().back().coefficient() / 2;
  return {slice(x, x.rank() - 1, 0, half, 2, here), slice(x, x.rank() - 1, 1, half, 2, here)};
}

Tensor matmul(const Tensor& x, const Tensor& w, const Here& here) {
  const Shape shape = {x.rank() > 0 ? x.shape()[0] : Extent(1), w.rank() > 0 ? w.shape()[0] : Extent(1)};
  return add_node(x.capture(),
                  {.op = Op::matmul, .type = {DType::fp32, shape}, .operands = {x.node(), w.node()}}, here);
}

Program::Program(std::string name, bool collects_breaks) : capture_{.collects_breaks = collects_breaks} {
  capture_.graph.name = std::move(name);
}

Program::RegionMark::RegionMark(Capture& capture)
    : capture_(capture), begin_(capture.in_region ? -1 : capture.graph.size()) {
  capture_.in_region = true;
}

Program::RegionMark::~RegionMark() {
  if (begin_ < 0) return;
  capture_.in_region = false;
  if (begin_ < capture_.graph.size()) capture_.graph.regions.push_back({begin_, capture_.graph.size()});
}

Extent Program::symbol(const Symbol& symbol) {
  capture_.graph.symbols.push_back(symbol);
  return Extent::of_symbol(static_cast<int>(capture_.graph.symbols.size()) - 1);
}

Tensor Program::input(const std::string& name, Shape shape, DType dtype, const Here& here) {
  return add_node(capture_, {.op = Op::input, .type = {dtype, std::move(shape)}, .name = name}, here);
}

Tensor Program::iota(Shape shape, int64_t axis, DType dtype, const Here& here) {
  return add_node(capture_,
                  {.op = Op::iota, .type = {dtype, std::move(shape)}, .attributes = {.axes = {axis}}}, here);
}

void Program::output(const std::string& name, const Tensor& tensor) {
  FATHOM_EXPECT(&tensor.capture() == &capture_, fmt::format("output '{}' is another program's tensor", name));
  capture_.graph.outputs.push_back({name, tensor.node()});
}

const Graph& Program::graph() const {
  const Status status = verify(capture_.graph);
  if (!status) throw ContractError(status.error().message);
  return capture_.graph;
}

}  // namespace fathom::compile
