#include "compile/canonical.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "compile/interpret.h"
#include "compile/random_graph.h"
#include "compile/text.h"

namespace fathom::compile {
namespace {

void expect_same_bits(const Numbers& a, const Numbers& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(std::bit_cast<int64_t>(a[i]) == std::bit_cast<int64_t>(b[i]) ||
                (std::isnan(a[i]) && std::isnan(b[i])))
        << "at " << i << ": " << a[i] << " became " << b[i];
}

TEST(Canonical, KeepsTheBitsOfRandomPrograms) {
  int before = 0, after = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Graph graph = random_graph(seed, 25, Values::any), result = canonical(graph);
    before += graph.size();
    after += result.size();
    for (const int64_t T : {0, 1, 7}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", T " << T << "\n"
                                      << print(graph) << print(result));
      const std::vector<int64_t> symbols = {T};
      const auto inputs                  = random_inputs(graph, symbols, seed, Values::any);
      const auto expected = interpret(graph, symbols, inputs), got = interpret(result, symbols, inputs);
      for (const auto& [name, numbers] : expected) expect_same_bits(numbers, got.at(name));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_LT(after, before * 3 / 4);  // most random nodes are unused
}

TEST(Canonical, IsIdempotent) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Graph once = canonical(random_graph(seed, 25, Values::any));
    EXPECT_EQ(print(canonical(once)), print(once));
  }
}

// The ops that are left, in order, without inputs.
std::string left(const std::function<Tensor(const Tensor&)>& program, DType dtype = DType::fp32) {
  Program p("g");
  p.output("y", program(p.input("x", {4, 6}, dtype)));
  std::string ops;
  for (const Node& node : canonical(p.graph()).nodes)
    if (node.op != Op::input) ops += (ops.empty() ? "" : " ") + std::string(row(node.op).name);
  return ops;
}

TEST(Canonical, IdentitiesThatKeepBits) {
  EXPECT_EQ(left([](Tensor x) { return x * 1; }), "");
  EXPECT_EQ(left([](Tensor x) { return 1 * x / 1 - 0.0; }), "");
  EXPECT_EQ(left([](Tensor x) { return x + -0.0; }), "");
  EXPECT_EQ(left([](Tensor x) { return -(-x); }), "");
  EXPECT_EQ(left([](Tensor x) { return abs(abs(-x)); }), "abs");
  EXPECT_EQ(left([](Tensor x) { return min(x, x); }), "");
  EXPECT_EQ(left([](Tensor x) { return x.to(DType::fp32).to(DType::bf16); }, DType::bf16), "");
  EXPECT_EQ(left([](Tensor x) { return permute(permute(x, {1, 0}), {1, 0}); }), "");
  EXPECT_EQ(left([](Tensor x) { return reshape(reshape(x, {24}), {4, 6}); }), "");
  EXPECT_EQ(left([](Tensor x) { return slice(slice(x, 1, 1, 5), 1, 1, 2, 2); }), "slice");
  EXPECT_EQ(left([](Tensor x) { return (x + 1) * (1 + x); }), "constant broadcast add mul");
}

TEST(Canonical, WhatChangesBitsStays) {
  EXPECT_EQ(left([](Tensor x) { return x + 0.0; }), "constant broadcast add");
  EXPECT_EQ(left([](Tensor x) { return x * 0; }), "constant broadcast mul");
  EXPECT_EQ(left([](Tensor x) { return x - x; }), "sub");
  EXPECT_EQ(left([](Tensor x) { return x.to(DType::bf16).to(DType::fp32); }), "cast cast");
  EXPECT_EQ(left([](Tensor x) { return sum(x, {}); }), "sum");
  EXPECT_EQ(left([](Tensor x) { return x + 1 - 1; }), "constant broadcast add sub");
}

TEST(Canonical, NumbersAreFolded) {
  const auto read = parse(
      "%0 = constant 3 fp32[]\n%1 = constant 4 fp32[]\n%2 = mul %0 %1 fp32[]\n"
      "%3 = broadcast %2 axes=[] fp32[5]\n%4 = neg %3 fp32[5]\noutput \"y\" %4",
      "a.ir");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(print(canonical(*read)).find("%0 = constant -12 fp32[]"), std::string("program \"\"\n").size());
}

}  // namespace
}  // namespace fathom::compile
