#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <optional>
#include <random>

#include "compile/explain.h"
#include "compile/function.h"
#include "compile/interpret.h"
#include "compile/random_graph.h"
#include "compile/text.h"
#include "core/expect.h"
#include "core/thread_pool.h"

namespace fathom::compile {
namespace {

const Options kSegments{.breaks = Breaks::segment};

Array array(std::vector<float>& numbers, std::vector<int64_t> extents) {
  return {DType::fp32, numbers.data(), std::move(extents)};
}

TEST(Segments, TheRestGoesOnWithTheValue) {
  ThreadPool pool(1);
  int way           = 0;
  const int line    = __LINE__ + 4;
  const Trace trace = [&](Program& p, const std::vector<Tensor>& in) {
    const Tensor energy = sum(in[0] * in[0], {0});
    const Tensor h      = 2 * in[0] + in[1];
    way                 = energy.item() > 100;
    p.output("y", way ? h / energy : h - 1);
  };
  Function f("branch", trace, kSegments);
  std::vector<float> x(6), r(6, 3), y(6);
  const auto call = [&](float value, int64_t n) {
    for (float& number : x) number = value;
    f.run({array(x, {n}), array(r, {n})}, {array(y, {n})}, pool);
    const float energy = value * value * static_cast<float>(n), h = 2 * value + 3;
    EXPECT_EQ(way, energy > 100);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], way ? h / energy : h - 1);
  };
  call(1, 6);
  ASSERT_EQ(f.segments().size(), 2u);
  EXPECT_EQ(
      f.segments()[0].because,
      fmt::format(
          "function_segments_test.cpp:{}: the host reads a value of %3 sum (function_segments_test.cpp:{})",
          line, line - 2));
  EXPECT_EQ(f.segments()[1].because, "");
  // The energy, and h that the rest reads; not the squares.
  EXPECT_EQ(f.segments()[0].executable->graph().outputs.size(), 2u);
  EXPECT_EQ(f.cache().compilations(), 2);
  call(8, 6);
  EXPECT_EQ(f.cache().compilations(), 3);  // the other way on; the first graph is known
  for (const float value : {1, 8, 2, 9}) call(value, 6);
  EXPECT_EQ(f.cache().compilations(), 3);
  call(8, 5);  // the extent is a symbol from now on
  EXPECT_EQ(f.cache().compilations(), 5);
  for (const int64_t n : {4, 3, 6, 2}) call(9, n);
  EXPECT_EQ(f.cache().compilations(), 5);
  const std::string told = explain(f);
  for (const char* part :
       {"graph 1 of the last call", "a break at function_segments_test.cpp:", "the end of the trace"})
    EXPECT_NE(told.find(part), told.npos) << told;
}

TEST(Segments, AnErrorIsTheDefault) {
  ThreadPool pool(1);
  std::vector<float> x(1);
  Function f("error", [](Program& p, const std::vector<Tensor>& in) { p.output("y", in[0] * in[0].item()); });
  EXPECT_THROW(f.run({array(x, {1})}, {array(x, {1})}, pool), GraphBreak);
}

// The program's nodes again, one expression after another, with breaks between them. A tensor is let go after
// its last use, so that each break keeps what is needed and no more.
Trace with_breaks(const Graph& graph, uint64_t seed, int& breaks) {
  return [&graph, seed, &breaks](Program& p, const std::vector<Tensor>& in) {
    std::mt19937_64 random(seed);
    Capture& capture = in[0].capture();
    std::vector<std::optional<Tensor>> tensors(graph.nodes.size());
    std::vector<int> last_use(graph.nodes.size(), -1);
    for (int id = 0; id < graph.size(); ++id)
      for (const int operand : graph[id].operands) last_use[static_cast<size_t>(operand)] = id;
    for (const Output& output : graph.outputs) last_use[static_cast<size_t>(output.node)] = graph.size();
    size_t input = 0;
    for (int id = 0; id < graph.size(); ++id) {
      const Node& node = graph[id];
      auto& tensor     = tensors[static_cast<size_t>(id)];
      if (node.op == Op::input) {
        tensor = in[input++];
        continue;
      }
      Node copy = node;
      for (int& operand : copy.operands) operand = tensors[static_cast<size_t>(operand)]->node();
      tensor.emplace(&capture, capture.graph.add(std::move(copy)));
      for (const int operand : node.operands)
        if (last_use[static_cast<size_t>(operand)] == id) tensors[static_cast<size_t>(operand)].reset();
      if (node.op == Op::constant || random() % 4 != 0) continue;
      ++breaks;
      std::vector<int64_t> axes(tensor->shape().size());
      std::iota(axes.begin(), axes.end(), 0);
      (void)(axes.empty() ? *tensor : sum(*tensor, axes)).item();
    }
    for (const Output& output : graph.outputs)
      p.output(output.name, *tensors[static_cast<size_t>(output.node)]);
  };
}

TEST(Segments, RandomProgramsBrokenAnywhereHaveTheInterpretersBits) {
  ThreadPool pool(2);
  int breaks      = 0;
  size_t segments = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    for (const int64_t T : {5, 1, 33}) {
      const Graph graph = with_symbol(random_graph(seed, 16, Values::whole), 0, T);
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", T " << T << "\n" << print(graph));
      const std::vector<int64_t> symbols = {T};
      const auto numbers                 = random_inputs(graph, symbols, seed, Values::whole);
      std::vector<Buffer<float>> memory;
      std::vector<Array> inputs, outputs;
      for (const int id : graph.inputs()) {
        const Numbers& from = numbers.at(graph[id].name);
        memory.emplace_back(static_cast<int64_t>(from.size()));
        for (size_t i = 0; i < from.size(); ++i)
          if (graph[id].type.dtype == DType::bf16)
            reinterpret_cast<bf16*>(memory.back().data())[i] = bf16(static_cast<float>(from[i]));
          else
            memory.back().data()[i] = static_cast<float>(from[i]);
        inputs.push_back({graph[id].type.dtype, memory.back().data(), values(graph[id].type.shape, symbols)});
      }
      for (const Output& output : graph.outputs) {
        const Type& type = graph[output.node].type;
        memory.emplace_back(product(type.shape).value(symbols));
        std::fill_n(memory.back().data(), memory.back().size(), NAN);
        outputs.push_back({type.dtype, memory.back().data(), values(type.shape, symbols)});
      }
      Function f("broken", with_breaks(graph, seed, breaks), kSegments);
      f.run(inputs, outputs, pool);
      segments += f.segments().size();
      for (size_t o = 0; o < outputs.size(); ++o) {
        const Numbers expected = interpret(graph, symbols, numbers).at(graph.outputs[o].name);
        for (size_t i = 0; i < expected.size(); ++i) {
          const float got = outputs[o].dtype == DType::bf16
                                ? static_cast<float>(static_cast<const bf16*>(outputs[o].data)[i])
                                : static_cast<const float*>(outputs[o].data)[i];
          ASSERT_EQ(got, expected[i]) << graph.outputs[o].name << " at " << i;
        }
      }
    }
  }
  EXPECT_GT(breaks, 200);
  EXPECT_GT(segments, 200u);
}

TEST(Segments, WhatIsKnownBreaksNothing) {
  ThreadPool pool(1);
  std::vector<float> x = {5}, y(1);
  Function f(
      "known",
      [](Program& p, const std::vector<Tensor>& in) {
        EXPECT_EQ(in[0].item(), 5);  // an input
        const Tensor twice = in[0] + in[0];
        EXPECT_EQ(twice.item(), 10);
        EXPECT_EQ(twice.item(), 10);
        p.output("y", twice);
      },
      kSegments);
  f.run({array(x, {1})}, {array(y, {1})}, pool);
  EXPECT_EQ(y[0], 10);
  EXPECT_EQ(f.segments().size(), 1u);
}

TEST(Segments, MistakesAreErrorsWithTheirPlace) {
  ThreadPool pool(1);
  std::vector<float> x(4, 1), y(4);
  const auto message = [&](Function& f) -> std::string {
    try {
      for (int i = 0; i < 80; ++i) {
        x[0] = static_cast<float>(i);
        f.run({array(x, {4})}, {array(y, {4})}, pool);
      }
    } catch (const ContractError& error) {
      return error.what();
    }
    return "no error";
  };
  Function rows(
      "rows", [](Program& p, const std::vector<Tensor>& in) { p.output("y", in[0] * in[0].item()); },
      kSegments);
  EXPECT_NE(message(rows).find("of [4]: item() is for one number"), std::string::npos) << message(rows);
  Function written(
      "written",
      [](Program& p, const std::vector<Tensor>& in) { p.output("y", in[0] * sum(in[0], {0}).item()); },
      kSegments);
  const std::string many = message(written);
  EXPECT_NE(many.find("written has compiled 65 segments"), many.npos) << many;
  EXPECT_NE(many.find("the host reads a value of %1 sum"), many.npos) << many;
  x[0] = 0;  // a value whose graphs are known
  EXPECT_NO_THROW(written.run({array(x, {4})}, {array(y, {4})}, pool));
  EXPECT_EQ(y[1], 3);
}

}  // namespace
}  // namespace fathom::compile
