#include "compile/gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "compile/canonical.h"
#include "compile/programs.h"
#include "compile/random_graph.h"
#include "compile/run_numbers.h"
#include "compile/text.h"
#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"

namespace fathom::compile {
namespace {

using Feeds = std::map<std::string, Numbers>;

// Numbers without structure in 0.25 .. 1.75 by magnitude, away from the corners of abs, min and max at 0.
Feeds feeds_for(const Graph& graph, std::span<const int64_t> symbols, uint64_t seed, bool positive) {
  Feeds feeds;
  std::mt19937_64 random(seed);
  for (const int id : graph.inputs()) {
    Numbers& numbers = feeds[graph[id].name];
    for (int64_t i = 0; i < product(graph[id].type.shape).value(symbols); ++i) {
      const double magnitude = 0.25 + 1.5 * static_cast<double>(random() >> 11) * 0x1p-53;
      const double value     = !positive && random() % 2 ? -magnitude : magnitude;
      // Exactly a number of its dtype.
      numbers.push_back(typed_pointwise(Op::cast, graph[id].type.dtype, value, 0));
    }
  }
  return feeds;
}

std::vector<std::string> input_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const int id : graph.inputs()) names.push_back(graph[id].name);
  return names;
}

// <dy, y> in double.
double projected(const Graph& forward, std::span<const int64_t> symbols, const Feeds& feeds,
                 const Numbers& dy) {
  const Numbers y = interpret(forward, symbols, feeds, Arithmetic::fp64).at("y");
  double sum      = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
  return sum;
}

// Every gradient of y against central differences of the forward graph, in double.
void expect_differences(const Graph& forward, std::vector<int64_t> symbols, double tolerance = 1e-7,
                        bool positive = false) {
  const Graph joint      = gradient(forward, "y", input_names(forward));
  Feeds feeds            = feeds_for(joint, symbols, 7, positive);
  const Feeds got        = interpret(joint, symbols, feeds, Arithmetic::fp64);
  constexpr double kStep = 1e-5;
  for (const std::string& name : input_names(forward)) {
    const Numbers& dx = got.at("d" + name);
    ASSERT_EQ(dx.size(), feeds.at(name).size());
    for (size_t i = 0; i < dx.size(); ++i) {
      double& x             = feeds.at(name)[i];
      const double at       = x;
      x                     = at + kStep;
      const double up       = projected(forward, symbols, feeds, feeds.at("dy"));
      x                     = at - kStep;
      const double low      = projected(forward, symbols, feeds, feeds.at("dy"));
      x                     = at;
      const double expected = (up - low) / (2 * kStep);
      ASSERT_NEAR(dx[i], expected, tolerance * std::max(1.0, std::abs(expected)))
          << "d" << name << " at " << i << " of\n"
          << print(joint);
    }
  }
}

// Fused and eager, one thread and two, against the interpreter in double: relative to the largest number.
void expect_executable(const Graph& joint, std::vector<int64_t> symbols, double tolerance) {
  const Graph graph   = canonical(joint);
  const Feeds feeds   = feeds_for(graph, symbols, 11, false);
  const auto expected = interpret(graph, symbols, feeds, Arithmetic::fp64);
  Executable fused(graph, fuse(graph)), eager(graph, unfused(graph));
  EXPECT_LT(fused.plan().groups.size(), eager.plan().groups.size());
  for (Executable* executable : {&fused, &eager})
    for (const int threads : {1, 2}) {
      ThreadPool pool(threads);
      for (const auto& [name, numbers] : run(*executable, symbols, feeds, pool)) {
        double largest = 0;
        for (const double number : expected.at(name)) largest = std::max(largest, std::abs(number));
        for (size_t i = 0; i < numbers.size(); ++i)
          ASSERT_NEAR(numbers[i], expected.at(name)[i], tolerance * largest) << name << " at " << i;
      }
    }
}

struct Case {
  const char* name;
  std::function<Tensor(Tensor x, Tensor z)> y;
  bool positive = false;
};

// x and z are [T, 4].
TEST(Gradient, EveryRuleIsTheDifference) {
  const std::vector<Case> cases = {
      {"neg", [](Tensor x, Tensor) { return -x; }},
      {"abs", [](Tensor x, Tensor) { return abs(x); }},
      {"exp", [](Tensor x, Tensor) { return exp(x); }},
      {"sqrt", [](Tensor x, Tensor) { return sqrt(x); }, true},
      {"rsqrt", [](Tensor x, Tensor) { return rsqrt(x); }, true},
      {"sigmoid", [](Tensor x, Tensor) { return sigmoid(x); }},
      {"tanh", [](Tensor x, Tensor) { return tanh(x); }},
      {"add", [](Tensor x, Tensor z) { return x + z; }},
      {"sub", [](Tensor x, Tensor z) { return x - z; }},
      {"mul", [](Tensor x, Tensor z) { return x * z; }},
      {"div", [](Tensor x, Tensor z) { return x / z; }},
      {"min", [](Tensor x, Tensor z) { return min(x, z); }},
      {"max", [](Tensor x, Tensor z) { return max(x, z); }},
      {"sum of rows", [](Tensor x, Tensor z) { return sum(x * z, {1}); }},
      {"sum of columns", [](Tensor x, Tensor z) { return sum(x * z, {0}); }},
      {"sum of all",
       [](Tensor x, Tensor z) {
         return sum(x * z, {0, 1});
       }},
      {"reduce_max", [](Tensor x, Tensor z) { return reduce_max(x * z, {1}); }},
      {"reshape",
       [](Tensor x, Tensor z) {
         return reshape(x * z, {x.shape()[0], 2, 2}) * 2;
       }},
      {"permute",
       [](Tensor x, Tensor z) {
         return permute(x, {1, 0}) * permute(z, {1, 0});
       }},
      {"cycle",
       [](Tensor x, Tensor z) {
         const Tensor a = permute(reshape(x, {x.shape()[0], 2, 2}), {2, 0, 1});  // its inverse is another
         return a * permute(reshape(z, {x.shape()[0], 2, 2}), {2, 0, 1});
       }},
      {"broadcast",
       [](Tensor x, Tensor z) {
         return broadcast(x * z, {3, x.shape()[0], 2, 4}, {1, 3}) * 2;
       }},
      {"rows times columns", [](Tensor x, Tensor z) { return sum(x, {1}, Keep::yes) * z; }},
      {"a row for all", [](Tensor x, Tensor z) { return x * sum(z, {0}); }},
      {"a number for all",
       [](Tensor x, Tensor z) {
         return x * sum(z, {0, 1});
       }},
      {"slice", [](Tensor x, Tensor z) { return slice(x, 1, 1, 2) * slice(z, 1, 1, 2, 2); }},
      {"pad",
       [](Tensor x, Tensor z) {
         return pad(x * z, {x.shape()[0], 9}, {0, 1}, {1, 2}) * 3;
       }},
      {"not all", [](Tensor x, Tensor) { return slice(x, 1, 0, 1); }},
      {"read often",
       [](Tensor x, Tensor z) {
         const Tensor s = x * z;
         return s * s + exp(s) / (2 + s * x * s);
       }},
  };
  for (const Case& c : cases)
    for (const int64_t rows : {0, 1, 5}) {
      SCOPED_TRACE(testing::Message() << c.name << " of " << rows);
      Program p("rule");
      const Extent T = p.symbol({.name = "T"});
      const Tensor x = p.input("x", {T, 4}), z = p.input("z", {T, 4});
      p.output("y", c.y(x, z));
      expect_differences(p.graph(), {rows}, 1e-7, c.positive);
    }
}

// Extents of the constant 1 repeat along the other operand's.
TEST(Gradient, ExtentsOfOne) {
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{1, 1}, Shape{3, 1}, Shape{1, 4}, Shape{4}, Shape{3, 4}}) {
    Program p("ones");
    const Tensor x = p.input("x", {3, 4}), z = p.input("z", shape);
    p.output("y", exp(x * z) + x / (z * z + 1));
    expect_differences(p.graph(), {});
  }
}

// A weight in bf16 has a gradient in bf16: one rounding beyond the difference.
TEST(Gradient, OfAMatmul) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const auto& [M, K, N] :
         {std::array<int64_t, 3>{1, 1, 1}, {1, 5, 3}, {7, 1, 2}, {5, 3, 1}, {4, 6, 5}}) {
      Program p("matmul");
      const Extent T = p.symbol({.name = "T"});
      const Tensor x = p.input("x", {T, K}, dtype), w = p.input("w", {N, K}, DType::bf16);
      p.output("y", matmul(x, w));
      expect_differences(p.graph(), {M}, 0x1p-7);
      const Graph graph = canonical(gradient(p.graph(), "y", {"x", "w"}));
      Executable executable(graph, fuse(graph));
      ThreadPool pool(2);
      for (const int64_t rows : {int64_t{0}, M}) {  // a sum over no rows is zero
        const std::vector<int64_t> symbols = {rows};
        const auto inputs                  = random_inputs(graph, symbols, 3, Values::whole);
        EXPECT_EQ(run(executable, symbols, inputs, pool), interpret(graph, symbols, inputs)) << print(graph);
      }
    }
}

TEST(Gradient, OfSoftmax) {
  Program p("softmax");
  const Extent T = p.symbol({.name = "T"}), V = p.symbol({.name = "V", .min = 1, .max = 4096});
  const Tensor x = p.input("x", {T, V});
  const Tensor e = exp(x - reduce_max(x, {-1}, Keep::yes));
  p.output("y", e / sum(e, {-1}, Keep::yes));
  for (const int64_t width : {1, 2, 7}) expect_differences(p.graph(), {3, width});
  // Differences of terms that are larger than the result.
  expect_executable(gradient(p.graph(), "y", {"x"}), {67, 257}, 4e-6);
}

TEST(Gradient, OfRmsNorm) {
  for (const int64_t width : {1, 2, 7}) {
    Program p("norm");
    const Extent T = p.symbol({.name = "T"});
    const Tensor x = p.input("x", {T, width}), w = p.input("w", {width});
    p.output("y", rms_norm(x, w, 1e-3));
    for (const int64_t rows : {0, 1, 3}) expect_differences(p.graph(), {rows});
  }
  Program p("norm");
  const Extent T = p.symbol({.name = "T"});
  p.output("y", rms_norm(p.input("x", {T, 257}), p.input("w", {257}), 1e-3));
  expect_executable(gradient(p.graph(), "y", {"x", "w"}), {67}, 1e-5);
}

// SwiGLU between two products. In fp64 nothing of it is rounded but the weights' gradients, and the operands
// of their products.
TEST(Gradient, OfAnMlp) {
  constexpr int64_t D = 6, I = 4;
  Program p("mlp");
  const Extent T = p.symbol({.name = "T"});
  const Tensor x = p.input("x", {T, D}), norm = p.input("norm", {D});
  const Tensor up = p.input("up", {2 * I, D}, DType::bf16), down = p.input("down", {D, I}, DType::bf16);
  const auto [gate, lin] = unzip(matmul(rms_norm(x, norm, 1e-3), up));
  p.output("y", x + matmul(min(gate, 1) * sigmoid(1.702 * min(gate, 1)) * (clamp(lin, -1, 1) + 1), down));
  for (const int64_t rows : {1, 3}) expect_differences(p.graph(), {rows}, 0x1p-6);
}

// The program as it is compiled, whose activations are rounded to bf16: fused, eager and interpreted agree
// within a rounding to bf16 of what flows.
TEST(Gradient, OfTheMlpProgramRuns) {
  const auto found  = std::ranges::find(programs(), "mlp", &NamedProgram::name);
  const Graph joint = gradient(found->graph(), "y", {"x", "norm", "up", "up_bias", "down"});
  EXPECT_EQ(joint.outputs.size(), 6u);
  expect_executable(joint, {37}, 0x1p-6);
}

// Joint graphs of random programs: canonical keeps the interpreter's bits, and plans run. Where all numbers
// are whole and small, the executable has the same bits too.
TEST(Gradient, OfRandomPrograms) {
  ThreadPool pool(2);
  int exact = 0, compared = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Graph forward = random_graph(seed, 12, Values::whole);
    const Graph joint   = gradient(forward, forward.outputs.back().name, input_names(forward));
    const Graph graph   = canonical(joint);
    Executable fused(graph, fuse(graph)), eager(graph, unfused(graph));
    for (const int64_t T : {0, 1, 7}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", T " << T << "\n" << print(graph));
      const std::vector<int64_t> symbols = {T};
      const Feeds feeds                  = random_inputs(joint, symbols, seed, Values::whole);
      const Feeds expected               = interpret(joint, symbols, feeds);
      ASSERT_EQ(interpret(graph, symbols, feeds), expected);
      const auto is_exact = [](const auto& named) {
        return std::ranges::all_of(named.second, [](double number) {
          return std::abs(number) < 0x1p20 && number == std::round(number);
        });
      };
      const bool comparable = std::ranges::all_of(expected, is_exact);
      ++compared;
      exact += comparable;
      kernels::for_each_simd_target([&] {
        const Feeds of_fused = run(fused, symbols, feeds, pool), of_eager = run(eager, symbols, feeds, pool);
        if (!comparable) return;
        EXPECT_EQ(of_fused, expected);
        EXPECT_EQ(of_eager, expected);
      });
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(exact, compared / 2);
}

TEST(Gradient, OfAnInputThatIsNotUsedIsZero) {
  Program p("unused");
  const Tensor x = p.input("x", {3}), narrow = p.input("narrow", {2, 2}, DType::bf16), z = p.input("z", {});
  p.output("y", x * 2);
  p.output("other", narrow + narrow);
  p.output("third", exp(z));
  const Graph joint = canonical(gradient(p.graph(), "y", {"narrow", "x", "z"}));
  Executable executable(joint, fuse(joint));
  ThreadPool pool(1);
  const Feeds got =
      run(executable, {}, {{"x", {1, 2, 3}}, {"narrow", {1, 1, 1, 1}}, {"z", {0}}, {"dy", {1, 0, -1}}}, pool);
  EXPECT_EQ(got.at("dnarrow"), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(got.at("dz"), (Numbers{0}));
  EXPECT_EQ(got.at("dx"), (Numbers{2, 0, -2}));
  EXPECT_EQ(got.at("other"), (Numbers{2, 2, 2, 2}));
}

// At a corner the operand that an op returns has it all; equal largest numbers share.
TEST(Gradient, AtCorners) {
  Program p("corners");
  const Tensor x = p.input("x", {2}), z = p.input("z", {2});
  p.output("y", min(x, z) + 10 * max(x, z) + 100 * abs(x - z) + 1000 * reduce_max(x, {0}));
  const Feeds got =
      interpret(gradient(p.graph(), "y", {"x", "z"}), {}, {{"x", {1, 1}}, {"z", {1, 1}}, {"dy", {1, 1}}});
  EXPECT_EQ(got.at("dx"), (Numbers{1000, 1000}));
  EXPECT_EQ(got.at("dz"), (Numbers{11, 11}));
}

TEST(Gradient, OfAGradient) {
  Program p("cube");
  const Tensor x = p.input("x", {2});
  p.output("y", x * x * x);
  Graph once           = gradient(p.graph(), "y", {"x"});
  once.outputs[1].name = "slope";
  const Feeds got =
      interpret(gradient(once, "slope", {"x"}), {}, {{"x", {1, 2}}, {"dy", {1, 1}}, {"dslope", {1, 1}}});
  EXPECT_EQ(got.at("slope"), (Numbers{3, 12}));
  EXPECT_EQ(got.at("dx"), (Numbers{6, 12}));
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const ContractError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Gradient, ErrorsNameOpAndPlace) {
  Program p("errors");
  const Tensor x = p.input("x", {2}), z = p.input("z", {2});
  const int line = __LINE__ + 1;
  p.output("y", greater(x, z) * z);
  p.output("dz", z + 1);
  const Graph& graph        = p.graph();
  const std::string no_rule = message_of([&] { gradient(graph, "y", {"x"}); });
  EXPECT_NE(no_rule.find("greater (gradient_test.cpp:" + std::to_string(line) + ") has no rule"),
            std::string::npos)
      << no_rule;
  const auto mentions = [&](const char* what, const std::string& message) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  mentions("no output 'u'", message_of([&] { gradient(graph, "u", {"x"}); }));
  mentions("no input 'u'", message_of([&] { gradient(graph, "y", {"u"}); }));
  mentions("'dz'", message_of([&] { gradient(graph, "dz", {"z"}); }));
}

}  // namespace
}  // namespace fathom::compile
