#include "compile/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "compile/canonical.h"
#include "compile/fuse.h"
#include "compile/random_graph.h"
#include "compile/tensor.h"

namespace fathom::compile {
namespace {

void expect_same(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.symbols, b.symbols);
  ASSERT_EQ(a.size(), b.size());
  for (int id = 0; id < a.size(); ++id) {
    SCOPED_TRACE(describe(a, id));
    EXPECT_EQ(a[id].op, b[id].op);
    EXPECT_EQ(a[id].type, b[id].type);
    EXPECT_EQ(a[id].operands, b[id].operands);
    EXPECT_EQ(a[id].attributes, b[id].attributes);
    EXPECT_EQ(std::signbit(a[id].attributes.value), std::signbit(b[id].attributes.value));
    EXPECT_EQ(a[id].name, b[id].name);
    EXPECT_EQ(a[id].place.text(), b[id].place.text());
  }
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    EXPECT_EQ(a.outputs[i].name, b.outputs[i].name);
    EXPECT_EQ(a.outputs[i].node, b.outputs[i].node);
  }
}

TEST(Text, WhatIsPrintedIsReadBack) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(seed, 20, Values::any);
    const auto read   = parse(print(graph), "random.ir");
    ASSERT_TRUE(read) << read.error().message;
    expect_same(graph, *read);
    EXPECT_EQ(print(*read), print(graph));
  }
}

TEST(Text, ConstantsKeepTheirBits) {
  Program p("constants");
  const Tensor x = p.input("x", {2});
  for (const double value : {0.1, -0.0, 1e-300, std::numeric_limits<double>::infinity(), 1 / 3.0}) x* value;
  const auto read = parse(print(p.graph()), "constants.ir");
  ASSERT_TRUE(read) << read.error().message;
  expect_same(p.graph(), *read);
}

TEST(Text, ReadsWhatAPersonWrites) {
  const auto graph = parse(R"(
    # The sum of squares of each row.
    program "squares"
    symbol T 1..4096 multiple 2
    %0 = input "x#1" fp32[ 2*T , 6 ]   # a comment
    %1 = mul %0 %0 fp32[T*2,6] @ squares.py:3
    %2 = sum %1 axes=[1] fp32[2*T]
    output "y" %2)",
                           "squares.ir");
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ((*graph)[0].name, "x#1");
  EXPECT_EQ((*graph)[0].place.text(), "squares.ir:5");
  EXPECT_EQ((*graph)[1].place.text(), "squares.py:3");
}

// Text that is nearly right is read or refused, and what is read can be compiled.
TEST(Text, BrokenTextIsRefused) {
  std::mt19937_64 random(1);
  const auto pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::string letters = "%0123456789*,[]=\"#@T-. \nabfpx";
  int read                  = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = print(random_graph(static_cast<uint64_t>(round % 40), 8, Values::any));
    for (size_t edits = pick(4) + 1; edits > 0; --edits) {
      const size_t at = pick(text.size());
      if (pick(3) == 0)
        text.erase(at, pick(3) + 1);
      else
        text[at] = letters[pick(letters.size())];
    }
    const auto graph = parse(text, "broken.ir");
    if (!graph) {
      EXPECT_FALSE(graph.error().message.empty());
      continue;
    }
    ++read;
    EXPECT_LE(fuse(canonical(*graph)).groups.size(), static_cast<size_t>(graph->size()));
  }
  EXPECT_GT(read, 100);
  EXPECT_LT(read, 3900);
}

TEST(Text, ErrorsNameFileLineAndCure) {
  const std::pair<const char*, const char*> wrongs[] = {
      {"%0 = inpt \"x\" fp32[4]", "a.ir:1: 'inpt' is no op"},
      {"%0 = input \"x\" fp23[4]", "a.ir:1: 'fp23' is no dtype"},
      {"%0 = input \"x\" fp32[T]", "a.ir:1: 'T' is no symbol; declare it above"},
      {"%0 = input \"x fp32[4]", "a.ir:1: a closing quote was expected"},
      {"\n%1 = input \"x\" fp32[4]", "a.ir:2: %1 stands where %0 was expected"},
      {"%0 = input \"x\" fp32[4] 7", "a.ir:1: the end of the line was expected at '7'"},
      {"%0 = input \"x\" fp32[4\n", "a.ir:1: ']' was expected"},
      {"output \"y\" %3", "output 'y' is %3, which the program lacks"},
      {"%0 = neg %0 fp32[4]", "%0 neg (a.ir:1): operand %0 does not come before it"},
      {"symbol T 4..3", "no value of T"},
      {"symbol T 0..9223372036854775807", "no value of T"},
      {"symbol T 0..9 multiple 0", "no value of T"},
      {"%0 = input \"x\" fp32[4000000000*4000000000]", "more than 2^50 elements"},
      {"%0 = input \"x\" fp32[4]\n%1 = slice %0 starts=[1] steps=[9223372036854775807] fp32[1]",
       "in steps of"},
      {"hello", "a.ir:1: '%' was expected at 'hello'"},
  };
  for (const auto& [text, message] : wrongs) {
    const auto graph = parse(text, "a.ir");
    ASSERT_FALSE(graph) << text;
    EXPECT_NE(graph.error().message.find(message), std::string::npos) << graph.error().message;
  }
}

}  // namespace
}  // namespace fathom::compile
