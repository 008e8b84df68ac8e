// The front end: a C++ function over Tensors, called once, writes down the graph of what it would compute.
//
//   Program p("norm");
//   const Extent T = p.symbol({.name = "T", .min = 1, .max = 65536});
//   Tensor x = p.input("x", {T, 256}), w = p.input("w", {256});
//   p.output("y", x * broadcast(rsqrt(mean(x * x, 1) + 1e-5), {T, 256}, {0}) * w);
//
// Shapes follow numpy: of two operands the one with fewer axes repeats along the other's first ones, and an
// extent of the constant 1 along any. Dtypes do not follow: `to` changes them, and numbers take the other
// operand's. Every node keeps the file and line of its expression. A mistake throws ContractError with both.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compile/graph.h"

namespace fathom::compile {

// The program reads a value that only a run can know: it cannot be captured from there on.
class GraphBreak : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Here {
  const char* file;
  int line;
  Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) : file(file), line(line) {}
  Place place() const;  // the file without its folders
};

// Gives a node's only number, at a break whose place and cause the text says.
using Reader = std::function<float(int node, const std::string& because)>;

// What a trace writes.
struct Capture {
  Graph graph;
  bool collects_breaks            = false;
  std::vector<std::string> breaks = {};  // messages, where they are collected
  bool in_region                  = false;
  Reader reader                   = {};  // where the trace goes on after a break
  // Of each node, what its Tensors share: gone where no later expression can read it. Kept with a reader.
  std::vector<std::weak_ptr<const int>> handles = {};

  bool lives(int node) const {
    return node < static_cast<int>(handles.size()) && !handles[static_cast<size_t>(node)].expired();
  }
};

class Tensor {
 public:
  Tensor(Capture* capture, int node);

  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  int64_t rank() const { return static_cast<int64_t>(shape().size()); }
  Tensor to(DType dtype, const Here& here = {}) const;

  // The graph breaks here: throws GraphBreak, with the place and the cure. Where the trace is one of
  // segments, what was written down is run, and it goes on with the number. Where breaks are collected this
  // one is noted, and the trace goes on with 1.
  float item(const Here& here = {}) const;

  Capture& capture() const { return *capture_; }
  int node() const { return node_; }

 private:
  const Type& type() const { return capture_->graph[node_].type; }

  Capture* capture_;
  int node_;
  std::shared_ptr<const int> handle_;  // with a reader
};

// An operand of an expression, and the place of the expression: operators cannot take a default argument.
struct Operand {
  Operand(const Tensor& tensor, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : tensor(tensor), here(file, line) {}
  Operand(double number, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : tensor(nullptr, -1), number(number), here(file, line) {}

  Tensor tensor;
  double number = 0;
  Here here;

  bool is_number() const { return tensor.node() < 0; }
};

// At least one of two operands is a Tensor.
Tensor operator+(const Operand& a, const Operand& b);
Tensor operator-(const Operand& a, const Operand& b);
Tensor operator*(const Operand& a, const Operand& b);
Tensor operator/(const Operand& a, const Operand& b);
Tensor operator-(const Operand& a);
Tensor min(const Operand& a, const Operand& b);
Tensor max(const Operand& a, const Operand& b);
Tensor greater(const Operand& a, const Operand& b);  // 1 or 0
Tensor clamp(const Operand& x, double low, double high);
Tensor abs(const Operand& x);
Tensor exp(const Operand& x);
Tensor sqrt(const Operand& x);
Tensor rsqrt(const Operand& x);
Tensor sigmoid(const Operand& x);
Tensor tanh(const Operand& x);

enum class Keep { no, yes };  // a reduced axis, as an extent of 1
// Axes below 0 count from the last.
Tensor sum(const Tensor& x, std::vector<int64_t> axes, Keep keep = Keep::no, const Here& here = {});
Tensor reduce_max(const Tensor& x, std::vector<int64_t> axes, Keep keep = Keep::no, const Here& here = {});
// Over the last axis, whose extent is constant; it is kept.
Tensor mean(const Tensor& x, const Here& here = {});
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, const Here& here = {});

Tensor reshape(const Tensor& x, Shape shape, const Here& here = {});
Tensor permute(const Tensor& x, std::vector<int64_t> axes, const Here& here = {});
Tensor broadcast(const Tensor& x, Shape shape, std::vector<int64_t> axes, const Here& here = {});
// `length` elements of an axis.
Tensor slice(const Tensor& x, int64_t axis, int64_t start, int64_t length, int64_t step = 1,
             const Here& here = {});
// Of every axis, as many elements as `shape` says.
Tensor slice(const Tensor& x, Shape shape, std::vector<int64_t> starts, std::vector<int64_t> steps,
             const Here& here = {});
// Zeros of `shape`, of which a slice with these starts and steps is x.
Tensor pad(const Tensor& x, Shape shape, std::vector<int64_t> starts, std::vector<int64_t> steps,
           const Here& here = {});
// Even and odd columns of the last axis, which is constant.
std::pair<Tensor, Tensor> unzip(const Tensor& x, const Here& here = {});
Tensor matmul(const Tensor& x, const Tensor& w, const Here& here = {});  // [M, K] and [N, K]

// A graph while it is written down. Tensors point into it, so it stays where it is.
class Program {
 public:
  explicit Program(std::string name, bool collects_breaks = false);
  Program(const Program&)            = delete;
  Program& operator=(const Program&) = delete;

  Extent symbol(const Symbol& symbol);
  Tensor input(const std::string& name, Shape shape, DType dtype = DType::fp32, const Here& here = {});
  Tensor iota(Shape shape, int64_t axis, DType dtype = DType::fp32, const Here& here = {});
  void output(const std::string& name, const Tensor& tensor);

  // Calls f, and what it writes down is a region: a block of a model, compiled once with all that are equal.
  //   for (const Mlp& w : layers) x = p.region([&] { return mlp(x, w); });
  // A region within another is a part of that.
  template <class F>
  auto region(F&& f) {
    const RegionMark mark(capture_);
    return f();
  }

  // Verified: throws ContractError where names collide or symbols admit no value.
  const Graph& graph() const;
  const std::vector<std::string>& breaks() const { return capture_.breaks; }
  // Before the first tensor: the trace goes on after breaks.
  void read_breaks_with(Reader reader) { capture_.reader = std::move(reader); }
  const Capture& capture() const { return capture_; }

 private:
  class RegionMark {
   public:
    explicit RegionMark(Capture& capture);
    RegionMark(const RegionMark&) = delete;
    ~RegionMark();

   private:
    Capture& capture_;
    const int begin_;  // -1: within another
  };

  Capture capture_;
};

}  // namespace fathom::compile
