#include "compile/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/expect.h"

namespace fathom::compile {
namespace {

// In the order of Op.
constexpr OpRow kOps[] = {
    {"input", OpKind::source, 0, 0},
    {"constant", OpKind::source, 0, 0},
    {"iota", OpKind::source, 0, 1},
    {"neg", OpKind::pointwise, 1, 1},
    {"abs", OpKind::pointwise, 1, 1},
    {"exp", OpKind::pointwise, 1, 16},
    {"sqrt", OpKind::pointwise, 1, 1},
    {"rsqrt", OpKind::pointwise, 1, 2},
    {"sigmoid", OpKind::pointwise, 1, 19},
    {"tanh", OpKind::pointwise, 1, 20},
    {"add", OpKind::pointwise, 2, 1},
    {"sub", OpKind::pointwise, 2, 1},
    {"mul", OpKind::pointwise, 2, 1},
    {"div", OpKind::pointwise, 2, 1},
    {"min", OpKind::pointwise, 2, 1},
    {"max", OpKind::pointwise, 2, 1},
    {"greater", OpKind::pointwise, 2, 1},
    {"cast", OpKind::pointwise, 1, 0},
    {"sum", OpKind::reduction, 1, 1},
    {"reduce_max", OpKind::reduction, 1, 1},
    {"reshape", OpKind::movement, 1, 0},
    {"permute", OpKind::movement, 1, 0},
    {"broadcast", OpKind::movement, 1, 0},
    {"slice", OpKind::movement, 1, 0},
    {"pad", OpKind::pad, 1, 0},
    {"matmul", OpKind::matmul, 2, 0},
};
static_assert(std::size(kOps) == static_cast<size_t>(Op::matmul) + 1);

constexpr auto kAllOps = [] {
  std::array<Op, std::size(kOps)> ops{};
  for (size_t i = 0; i < ops.size(); ++i) ops[i] = static_cast<Op>(i);
  return ops;
}();

// Checks one node; the members that find a breach return it.
struct Checker {
  Op op;
  const std::vector<Type>& operands;
  const Attributes& attributes;
  const Type& type;
  std::span<const Symbol> symbols;

  std::string shown(const Shape& shape) const { return text(shape, symbols); }
  size_t rank() const { return type.shape.size(); }
  const Shape& from() const { return operands[0].shape; }

  Status expect_shape(const Shape& shape) const {
    if (type.shape == shape) return Ok{};
    return Error{fmt::format("its shape is {}, not {}", shown(shape), shown(type.shape))};
  }
  Status expect_dtype(DType dtype) const {
    if (type.dtype == dtype) return Ok{};
    return Error{fmt::format("its dtype is {}, not {}; cast to change it", traits(dtype).name,
                             traits(type.dtype).name)};
  }
  // Ascending axes below `rank`.
  Status expect_axes(size_t rank) const {
    for (size_t i = 0; i < attributes.axes.size(); ++i)
      if (attributes.axes[i] < 0 || attributes.axes[i] >= static_cast<int64_t>(rank) ||
          (i > 0 && attributes.axes[i] <= attributes.axes[i - 1]))
        return Error{
            fmt::format("axes [{}] must ascend and lie below {}", fmt::join(attributes.axes, ", "), rank)};
    return Ok{};
  }

  Status source() const {
    if (op == Op::constant && rank() > 0) return Error{"a constant has shape []; broadcast it to another"};
    if (op == Op::iota && (attributes.axes.size() != 1 || attributes.axes[0] < 0 ||
                           attributes.axes[0] >= static_cast<int64_t>(rank())))
      return Error{fmt::format("iota needs one axis below {}", rank())};
    return Ok{};
  }

  Status pointwise() const {
    for (const Type& operand : operands) {
      if (operand.shape != from())
        return Error{fmt::format("operands have shapes {} and {}; broadcast one to the other's",
                                 shown(from()), shown(operand.shape))};
      if (operand.dtype != operands[0].dtype)
        return Error{fmt::format("operands are {} and {}; cast one to the other's dtype",
                                 traits(operands[0].dtype).name, traits(operand.dtype).name)};
    }
    if (op != Op::cast)
      if (Status status = expect_dtype(operands[0].dtype); !status) return status;
    return expect_shape(from());
  }

  Status reduction() const {
    if (Status status = expect_axes(from().size()); !status) return status;
    if (Status status = expect_dtype(operands[0].dtype); !status) return status;
    Shape kept;
    for (size_t i = 0; i < from().size(); ++i)
      if (std::find(attributes.axes.begin(), attributes.axes.end(), static_cast<int64_t>(i)) ==
          attributes.axes.end())
        kept.push_back(from()[i]);
    return expect_shape(kept);
  }

  Status permute() const {
    std::vector<int64_t> sorted = attributes.axes, all(from().size());
    std::sort(sorted.begin(), sorted.end());
    std::iota(all.begin(), all.end(), 0);
    if (sorted != all)
      return Error{
          fmt::format("axes [{}] are no permutation of {}", fmt::join(attributes.axes, ", "), from().size())};
    Shape shape;
    for (const int64_t axis : attributes.axes) shape.push_back(from()[static_cast<size_t>(axis)]);
    return expect_shape(shape);
  }

  Status broadcast() const {
    if (attributes.axes.size() != from().size())
      return Error{fmt::format("a broadcast of {} needs an axis for each of its extents", shown(from()))};
    if (Status status = expect_axes(rank()); !status) return status;
    for (size_t i = 0; i < from().size(); ++i)
      if (from()[i] != type.shape[static_cast<size_t>(attributes.axes[i])])
        return Error{fmt::format("{} does not fit axes [{}] of {}; reshape an extent of 1 away first",
                                 shown(from()), fmt::join(attributes.axes, ", "), shown(type.shape))};
    return Ok{};
  }

  // `part` of `whole`, as the attributes say.
  Status slice(const Shape& whole, const Shape& part) const {
    if (attributes.starts.size() != whole.size() || attributes.steps.size() != whole.size() ||
        part.size() != whole.size())
      return Error{
          fmt::format("a {} of {} needs a start and a step for each axis", row(op).name, shown(from()))};
    for (size_t i = 0; i < whole.size(); ++i) {
      const int64_t start = attributes.starts[i], step = attributes.steps[i];
      if (start == 0 && step == 1 && whole[i] == part[i]) continue;
      if (!whole[i].is_constant() || !part[i].is_constant())
        return Error{fmt::format("axis {} of {} is symbolic; a slice takes all of it", i, shown(whole))};
      const int64_t length = part[i].coefficient(), extent = whole[i].coefficient();
      const bool inside =
          length == 0 || (start < extent && length - 1 <= (extent - 1 - start) / std::max<int64_t>(step, 1));
      if (start < 0 || step < 1 || step > std::max<int64_t>(extent, 1) || length < 0 || !inside)
        return Error{fmt::format("{} elements from {} in steps of {} leave axis {} of {}", length, start,
                                 step, i, shown(whole))};
    }
    return Ok{};
  }

  Status movement() const {
    if (Status status = expect_dtype(operands[0].dtype); !status) return status;
    if (op == Op::permute) return permute();
    if (op == Op::broadcast) return broadcast();
    if (op == Op::slice) return slice(from(), type.shape);
    if (product(from()) == product(type.shape)) return Ok{};
    return Error{
        fmt::format("{} and {} do not have the same number of elements", shown(from()), shown(type.shape))};
  }

  Status matmul() const {
    const Shape& w = operands[1].shape;
    if (from().size() != 2 || w.size() != 2 || from()[1] != w[1])
      return Error{fmt::format("x {} and w {} must be [M, K] and [N, K]; reshape or permute", shown(from()),
                               shown(w))};
    if (operands[1].dtype != DType::bf16) return Error{"w must be bf16; cast it"};
    if (Status status = expect_dtype(DType::fp32); !status) return status;
    return expect_shape({from()[0], w[0]});
  }

  Status check() const {
    if (type.dtype != DType::fp32 && type.dtype != DType::bf16)
      return Error{
          fmt::format("dtype {} is not supported; tensors are fp32 or bf16", traits(type.dtype).name)};
    if (operands.size() != static_cast<size_t>(row(op).operands))
      return Error{fmt::format("it takes {} operands, not {}", row(op).operands, operands.size())};
    switch (row(op).kind) {
      case OpKind::source:
        return source();
      case OpKind::pointwise:
        return pointwise();
      case OpKind::reduction:
        return reduction();
      case OpKind::movement:
        return movement();
      case OpKind::pad:
        if (Status status = expect_dtype(operands[0].dtype); !status) return status;
        return slice(type.shape, from());
      case OpKind::matmul:
        return matmul();
    }
    return Ok{};
  }
};

}  // namespace

const OpRow& row(Op op) { return kOps[static_cast<size_t>(op)]; }

const Op* find_op(std::string_view name) {
  const auto found =
      std::find_if(kAllOps.begin(), kAllOps.end(), [&](Op op) { return row(op).name == name; });
  return found == kAllOps.end() ? nullptr : &*found;
}

Status check_type(Op op, const std::vector<Type>& operands, const Attributes& attributes, const Type& type,
                  std::span<const Symbol> symbols) {
  return Checker{op, operands, attributes, type, symbols}.check();
}

template <class T>
T pointwise_value(Op op, T a, T b) {
  switch (op) {
    case Op::neg:
      return -a;
    case Op::abs:
      return std::abs(a);
    case Op::exp:
      return std::exp(a);
    case Op::sqrt:
      return std::sqrt(a);
    case Op::rsqrt:
      return 1 / std::sqrt(a);
    case Op::sigmoid:
      return 1 / (1 + std::exp(-a));
    case Op::tanh:
      return std::tanh(a);
    case Op::add:
      return a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::div:
      return a / b;
    case Op::min:
      return a < b ? a : b;
    case Op::max:
      return a > b ? a : b;
    case Op::greater:
      return a > b ? 1 : 0;
    case Op::cast:
      return a;
    default:
      break;
  }
  FATHOM_EXPECT(false, fmt::format("{} is not pointwise", row(op).name));
  return a;
}
template float pointwise_value(Op, float, float);
template double pointwise_value(Op, double, double);

double bytes_of(const Type& type, std::span<const int64_t> symbols) {
  return static_cast<double>(product(type.shape).value(symbols)) * traits(type.dtype).bits / 8;
}

double flops_of(Op op, const std::vector<Type>& operands, const Type& type,
                std::span<const int64_t> symbols) {
  const auto elements = [&](const Type& of) { return static_cast<double>(product(of.shape).value(symbols)); };
  if (op == Op::matmul) return 2 * elements(type) * static_cast<double>(operands[0].shape[1].value(symbols));
  return row(op).flops * elements(is_reduction(op) ? operands[0] : type);
}

}  // namespace fathom::compile
