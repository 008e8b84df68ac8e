#include "compile/random_graph.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace fathom::compile {
namespace {

class Generator {
 public:
  Generator(uint64_t seed, Values values) : random_(seed), values_(values), program_("random") {
    const Extent T       = program_.symbol({.name = "T", .min = 0, .max = 4096});
    const Shape shapes[] = {{T, 6}, {T, 6}, {6}, {T}, {}, {T, 2, 3}};
    for (const Shape& shape : shapes)
      pool_.push_back(program_.input("x" + std::to_string(pool_.size()), shape,
                                     pick(3) == 0 ? DType::bf16 : DType::fp32));
    pool_.push_back(program_.iota({T, 6}, pick(2)));
    weights_ = {program_.input("w", {6, 6}, DType::bf16), program_.input("v", {1, 6}, DType::bf16)};
  }

  Graph graph(int nodes) {
    for (int i = 0; i < nodes; ++i) pool_.push_back(bounded(next()));
    for (int i = 0; i < 3; ++i) program_.output("y" + std::to_string(i), pool_[pool_.size() - 1 - pick(4)]);
    return program_.graph();
  }

 private:
  size_t pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  const Tensor& any() { return pool_[pool_.size() - 1 - std::min(pick(pool_.size()), pick(pool_.size()))]; }

  // Whole numbers stay below 2^8, so that bf16 holds them and sums of products are exact.
  Tensor bounded(const Tensor& x) { return values_ == Values::whole ? clamp(x, -8, 8) : x; }

  Tensor next() {
    const Tensor x = any();
    switch (pick(9)) {
      case 0:
        return values_ == Values::any ? unary_any(x) : (pick(2) ? -x : abs(x));
      case 1:
        return x.to(pick(2) ? DType::bf16 : DType::fp32);
      case 2:
        return reduced(x);
      case 3:
        return moved(x);
      case 4:
        return multiplied(x);
      default:
        return binary(x);
    }
  }

  Tensor unary_any(const Tensor& x) {
    switch (pick(8)) {
      case 0:
        return -x;
      case 1:
        return abs(x);
      case 2:
        return exp(x);
      case 3:
        return sqrt(x);
      case 4:
        return rsqrt(x);
      case 5:
        return sigmoid(x);
      case 6:
        return tanh(x);
      default:
        return -(-x);
    }
  }

  Tensor binary(const Tensor& x) {
    static constexpr double kNumbers[] = {0.0, -0.0, 1.0, -1.0, 2.0, 3.0};
    if (pick(3) == 0) {
      const double number = kNumbers[pick(std::size(kNumbers))];
      return pick(2) ? applied(x, number) : applied(number, x);
    }
    for (int tries = 0; tries < 20; ++tries) {
      const Tensor y = any();
      if (fit(x, y)) return applied(x, y.to(x.dtype()));
    }
    return applied(x, x);
  }

  Tensor applied(const Operand& a, const Operand& b) {
    switch (pick(values_ == Values::any ? 6 : 5)) {
      case 0:
        return a + b;
      case 1:
        return a - b;
      case 2:
        return a * b;
      case 3:
        return min(a, b);
      case 4:
        return max(a, b);
      default:
        return a / b;
    }
  }

  static bool fit(const Tensor& a, const Tensor& b) {
    for (int64_t i = 1; i <= std::min(a.rank(), b.rank()); ++i) {
      const Extent &m = a.shape()[static_cast<size_t>(a.rank() - i)],
                   &n = b.shape()[static_cast<size_t>(b.rank() - i)];
      if (m != n && !m.is(1) && !n.is(1)) return false;
    }
    return true;
  }

  Tensor reduced(const Tensor& x) {
    if (x.rank() == 0) return x;
    const auto axis           = static_cast<int64_t>(pick(static_cast<size_t>(x.rank())));
    const Keep keep           = pick(2) ? Keep::yes : Keep::no;
    std::vector<int64_t> axes = {axis};
    if (pick(4) == 0) axes = {};
    // A sum along T may leave the whole numbers that fp32 holds exactly only after millions of rows.
    return pick(2) ? sum(x, axes, keep) : reduce_max(bounded(max(x, Operand(-8.0))), axes, keep);
  }

  Tensor moved(const Tensor& x) {
    if (x.rank() == 0) return broadcast(x, {6}, {});
    const Extent last = x.shape().back();
    switch (pick(4)) {
      case 0: {
        std::vector<int64_t> axes(static_cast<size_t>(x.rank()));
        for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
        std::shuffle(axes.begin(), axes.end(), random_);
        return permute(x, axes);
      }
      case 1: {
        Shape shape = x.shape();
        if (shape.size() > 2 && shape[1].is_constant() && shape[2].is_constant())
          return reshape(x, {shape[0], shape[1] * shape[2]});
        if (last.is(6)) {
          shape.back() = 2;
          shape.push_back(3);
          return shape.size() <= 3 ? reshape(x, shape) : x;
        }
        shape.insert(shape.begin() + static_cast<int64_t>(pick(shape.size() + 1)), 1);
        return shape.size() <= 3 ? reshape(x, shape) : reshape(x, {product(x.shape())});
      }
      case 2: {
        if (!last.is_constant() || last.coefficient() < 4) return x;
        const int64_t n = last.coefficient();
        return pick(2) ? slice(x, x.rank() - 1, 1, n / 2, 2 - n % 2) : slice(x, x.rank() - 1, 1, n - 1);
      }
      default: {
        if (x.rank() > 2) return x;
        Shape shape = x.shape();
        shape.insert(shape.begin(), 2);
        std::vector<int64_t> axes;
        for (int64_t i = 0; i < x.rank(); ++i) axes.push_back(i + 1);
        return broadcast(x, shape, axes);
      }
    }
  }

  Tensor multiplied(const Tensor& x) {
    return x.rank() == 2 && x.shape()[1].is(6) ? matmul(bounded(x), weights_[pick(2)]) : binary(x);
  }

  std::mt19937_64 random_;
  Values values_;
  Program program_;
  std::vector<Tensor> pool_, weights_;
};

}  // namespace

Graph random_graph(uint64_t seed, int nodes, Values values) { return Generator(seed, values).graph(nodes); }

std::map<std::string, Numbers> random_inputs(const Graph& graph, std::span<const int64_t> symbols,
                                             uint64_t seed, Values values) {
  std::mt19937_64 random(seed);
  std::map<std::string, Numbers> inputs;
  for (const int id : graph.inputs()) {
    Numbers& numbers = inputs[graph[id].name];
    numbers.resize(static_cast<size_t>(product(graph[id].type.shape).value(symbols)));
    for (double& number : numbers) {
      if (values == Values::whole) {
        number = std::uniform_int_distribution<int>(-4, 4)(random);
        continue;
      }
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      const double drawn[]       = {0.0, -0.0, 1.0, kInfinity, -kInfinity};
      const auto which           = std::uniform_int_distribution<size_t>(0, 19)(random);
      number                     = which < std::size(drawn) ? drawn[which]
                                                            : typed_pointwise(Op::cast, graph[id].type.dtype,
                                                                              std::normal_distribution<>(0, 2)(random), 0);
    }
  }
  return inputs;
}

}  // namespace fathom::compile
