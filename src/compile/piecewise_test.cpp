#include "compile/piecewise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "compile/canonical.h"
#include "compile/explain.h"
#include "compile/function.h"
#include "compile/programs.h"
#include "compile/random_graph.h"
#include "compile/run_numbers.h"
#include "compile/text.h"
#include "core/thread_pool.h"

namespace fathom::compile {
namespace {

std::vector<Region> random_regions(int nodes, std::mt19937_64& random) {
  std::vector<Region> regions;
  for (int at = 0; at < nodes;) {
    const int begin = at + std::uniform_int_distribution<int>(0, 4)(random);
    const int end   = begin + std::uniform_int_distribution<int>(1, 9)(random);
    if (end > nodes) break;
    regions.push_back({begin, end});
    at = end;
  }
  return regions;
}

TEST(Piecewise, RandomProgramsCutAnywhereHaveTheInterpretersBits) {
  ThreadPool pool(2);
  size_t pieces = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    Graph graph   = random_graph(seed, 24, Values::whole);
    graph.regions = random_regions(graph.size(), random);
    CompileCache cache;
    Piecewise program(graph, cache);
    pieces += program.parts().size();
    for (const int64_t T : {7, 0, 1, 130}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", T " << T << "\n" << print(graph));
      const std::vector<int64_t> symbols = {T};
      const auto inputs                  = random_inputs(graph, symbols, seed, Values::whole);
      EXPECT_EQ(run(program, symbols, inputs, pool), interpret(graph, symbols, inputs));
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(pieces, 300u);
}

// A stack of blocks as a trace of inputs x, then four weights a layer.
constexpr int64_t kHidden = 48, kIntermediate = 20;
Graph stack(int layers, bool regions) {
  Program p("stack");
  const Extent T = p.symbol({.name = "T"});
  p.symbol({.name = "unused"});
  Tensor x = p.input("x", {T, kHidden});
  for (int layer = 0; layer < layers; ++layer) {
    const std::string name = "layer" + std::to_string(layer) + ".";
    const Mlp w{.norm    = p.input(name + "norm", {kHidden}),
                .up      = p.input(name + "up", {2 * kIntermediate, kHidden}, DType::bf16),
                .up_bias = p.input(name + "up_bias", {2 * kIntermediate}, DType::bf16),
                .down    = p.input(name + "down", {kHidden, kIntermediate}, DType::bf16)};
    x = regions ? p.region([&] { return mlp(x, w); }) : mlp(x, w);
  }
  p.output("y", x);
  return p.graph();
}

std::map<std::string, Numbers> stack_inputs(const Graph& graph, const std::vector<int64_t>& symbols) {
  std::mt19937_64 random(3);
  std::map<std::string, Numbers> inputs;
  for (const int id : graph.inputs()) {
    Numbers& numbers = inputs[graph[id].name];
    for (int64_t i = 0; i < product(graph[id].type.shape).value(symbols); ++i)
      numbers.push_back(
          typed_pointwise(Op::cast, graph[id].type.dtype, std::normal_distribution<>(0, 0.3)(random), 0));
  }
  return inputs;
}

TEST(Piecewise, EqualBlocksAreCompiledOnceWithTheBitsOfTheWholeModel) {
  ThreadPool pool(2);
  CompileCache cache;
  Piecewise regional(stack(6, true), cache), whole(stack(6, false), cache);
  EXPECT_EQ(regional.parts().size(), 6u);
  EXPECT_EQ(regional.executables(), 1u);
  // A block's norm is fused with the product before it, unless a region begins between them.
  EXPECT_EQ(regional.launches(), 18u);
  EXPECT_EQ(whole.launches(), 13u);
  EXPECT_EQ(cache.compilations(), 2);
  EXPECT_EQ(cache.hits(), 5);
  for (const int64_t T : {0, 1, 9, 50}) {
    const std::vector<int64_t> symbols = {T, 3};
    const auto inputs                  = stack_inputs(whole.graph(), symbols);
    EXPECT_EQ(run(regional, symbols, inputs, pool), run(whole, symbols, inputs, pool)) << T;
  }
  // Another model of the same blocks has nothing left to compile.
  Piecewise deeper(stack(9, true), cache);
  EXPECT_EQ(cache.compilations(), 2);
  // Without their regions they are one piece.
  EXPECT_EQ(Piecewise(stack(6, true), cache, false).parts().size(), 1u);
  EXPECT_EQ(cache.compilations(), 2);
}

TEST(Piecewise, AFunctionCompilesABlockOnceForEachShape) {
  ThreadPool pool(1);
  Function f("model", [](Program& p, const std::vector<Tensor>& in) {
    Tensor x = in[0];
    for (int layer = 0; layer < 5; ++layer) x = p.region([&] { return x + rms_norm(x, in[1], 1e-5); });
    p.output("y", x);
  });
  std::vector<float> x(64, 1), w(4, 1), y(64);
  const auto call = [&](int64_t rows) {
    f.run({{DType::fp32, x.data(), {rows, 4}}, {DType::fp32, w.data(), {4}}},
          {{DType::fp32, y.data(), {rows, 4}}}, pool);
    EXPECT_NEAR(y[0], 6, 1e-3) << rows;
  };
  call(3);
  EXPECT_EQ(f.cache().compilations(), 1);
  call(5);  // the number of rows is a symbol from now on
  EXPECT_EQ(f.cache().compilations(), 2);
  for (const int64_t rows : {7, 16, 3}) call(rows);
  EXPECT_EQ(f.cache().compilations(), 2);
  EXPECT_EQ(f.cache().hits(), 8);
  EXPECT_NE(explain(f).find("of 5 pieces, 1 of them different"), std::string::npos) << explain(f);
}

TEST(Piecewise, OutputsAreInputsConstantsOrTheSameNodeTwice) {
  Program p("odd");
  const Extent T = p.symbol({.name = "T"});
  const Tensor x = p.input("x", {T, 2}), unused = p.input("unused", {T});
  const Tensor two = 2 * x, flat = reshape(two, {2 * T});
  const Tensor three = p.region([&] { return p.region([&] { return flat + 1; }) + 0.5; });
  p.region([&] { return unused + unused; });
  p.region([] { return 0; });  // no region
  p.output("x_too", x);
  p.output("two", two);
  p.output("twice", two);
  p.output("flat", flat);
  p.output("three", three);
  const Graph graph = p.graph();
  EXPECT_EQ(graph.regions.size(), 2u);
  CompileCache cache;
  Piecewise program(graph, cache);
  EXPECT_EQ(program.parts().size(), 2u);  // nobody reads the second region
  ThreadPool pool(1);
  for (const int64_t rows : {0, 1, 5}) {
    const std::vector<int64_t> symbols = {rows};
    const auto inputs                  = random_inputs(graph, symbols, 1, Values::whole);
    EXPECT_EQ(run(program, symbols, inputs, pool), interpret(graph, symbols, inputs)) << rows;
  }
  const Result<Graph> again = parse(print(graph), "odd.ir");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->regions, graph.regions);
}

TEST(Content, IgnoresNamesAndPlaces) {
  Program p("one"), q("two");
  const Extent T = p.symbol({.name = "T"}), rows = q.symbol({.name = "rows"});
  p.output("y", p.input("x", {T, 3}) * 2);
  q.output("z", q.input("in", {rows, 3}) * 2);
  EXPECT_NE(print(p.graph()), print(q.graph()));
  EXPECT_EQ(content_of(p.graph()), content_of(q.graph()));
}

// Everything that one change of a program can change.
std::vector<Graph> changed(const Graph& graph) {
  std::vector<Graph> graphs;
  const auto with = [&](const auto& change) {
    Graph other = graph;
    change(other);
    if (verify(other)) graphs.push_back(std::move(other));
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op == Op::constant)
      for (const double value : {std::nextafter(node.attributes.value, 9), -node.attributes.value})
        with([&](Graph& g) { g.nodes[i].attributes.value = value; });
    if (is_pointwise(node.op))
      for (const Op op : {Op::add, Op::sub, Op::min, Op::neg, Op::abs})
        if (op != node.op) with([&](Graph& g) { g.nodes[i].op = op; });
    if (is_reduction(node.op))
      with([&](Graph& g) { g.nodes[i].op = node.op == Op::sum ? Op::reduce_max : Op::sum; });
    if (node.operands.size() == 2 && node.operands[0] != node.operands[1])
      with([&](Graph& g) { std::swap(g.nodes[i].operands[0], g.nodes[i].operands[1]); });
    for (size_t a = 0; a < node.attributes.starts.size(); ++a)
      with([&](Graph& g) { g.nodes[i].attributes.starts[a] ^= 1; });
    if (node.op == Op::input)
      with([&](Graph& g) {
        g.nodes[i].type.dtype = node.type.dtype == DType::bf16 ? DType::fp32 : DType::bf16;
      });
  }
  for (size_t o = 0; o < graph.outputs.size(); ++o)
    with([&](Graph& g) { g.outputs[o].node = g.outputs[o].node == 0 ? 1 : g.outputs[o].node - 1; });
  with([](Graph& g) { g.symbols[0].max -= 1; });
  with([](Graph& g) { g.symbols[0].multiple = 2; });
  with([](Graph& g) { g = with_symbol(g, 0, 8); });
  return graphs;
}

TEST(Content, DiffersWhereProgramsDo) {
  size_t changes = 0;
  std::map<std::string, Graph> by_content;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Graph graph         = random_graph(seed, 12, Values::any);
    const std::string content = content_of(graph);
    for (const Graph& other : changed(graph)) {
      EXPECT_NE(content_of(other), content) << print(other);
      ++changes;
    }
    // Programs of different seeds that share an entry compute the same.
    const auto [same, added] = by_content.emplace(content, graph);
    if (added) continue;
    const std::vector<int64_t> symbols = {5};
    const auto inputs                  = random_inputs(graph, symbols, seed, Values::whole);
    EXPECT_EQ(interpret(graph, symbols, inputs), interpret(same->second, symbols, inputs));
  }
  EXPECT_GT(changes, 2000u);
}

// A cache that has seen a program and everything near it still gives each its own.
TEST(CompileCache, NearProgramsDoNotShareAnEntry) {
  ThreadPool pool(1);
  CompileCache cache;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const Graph graph      = random_graph(seed, 8, Values::whole);
    std::vector<Graph> all = changed(graph);
    all.push_back(graph);
    for (const Graph& near : all) {
      const std::vector<int64_t> symbols(1, 6);
      const auto inputs = random_inputs(near, symbols, seed, Values::whole);
      CompileCache alone;
      const std::shared_ptr<Executable> shared = cache.compiled(near), own = alone.compiled(near);
      EXPECT_EQ(content_of(shared->graph()), content_of(own->graph()));
      EXPECT_EQ(run(*shared, symbols, inputs, pool), run(*own, symbols, inputs, pool));
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(cache.compilations(), 60);
  const auto twice = cache.compiled(random_graph(0, 8, Values::whole), false);
  EXPECT_NE(twice, cache.compiled(random_graph(0, 8, Values::whole), true));  // eager and fused
}

}  // namespace
}  // namespace fathom::compile
