#include "compile/graph.h"

#include <gtest/gtest.h>

#include "compile/tensor.h"
#include "core/expect.h"

namespace fathom::compile {
namespace {

const std::vector<Symbol> kSymbols = {{.name = "T", .min = 1, .max = 64, .multiple = 8}, {.name = "H"}};
const Extent T = Extent::of_symbol(0), H = Extent::of_symbol(1);

TEST(Extent, IsAConstantTimesSymbols) {
  const Extent extent = 3 * H * T * 2;
  EXPECT_EQ(extent, T * 6 * H);
  EXPECT_EQ(extent.text(kSymbols), "6*T*H");
  for (const int64_t t : {0, 1, 7}) EXPECT_EQ(extent.value(std::vector<int64_t>{t, 5}), 30 * t);
  EXPECT_EQ(extent.with(0, 7), 42 * H);
  EXPECT_EQ(extent.with(0, 0), Extent(0));
  EXPECT_TRUE(extent.with(0, 7).with(1, 2).is(84));
  EXPECT_EQ(text({T, 256}, kSymbols), "[T, 256]");
  EXPECT_EQ(product({}), Extent(1));
}

TEST(Extent, ATypicalValueIsAdmitted) {
  for (const Symbol& symbol : {Symbol{.name = "a"}, Symbol{.name = "b", .min = 3, .max = 7},
                               Symbol{.name = "c", .min = 1025, .max = 1025},
                               Symbol{.name = "d", .min = 1, .max = 5000, .multiple = 3000}})
    EXPECT_TRUE(symbol.admits(symbol.typical())) << symbol.name << " " << symbol.typical();
}

struct Wrong {
  const char* what;
  Node node;
  const char* cure;  // a part of the message
};

// %0 [T, 6] fp32, %1 [6] bf16, then the wrong node.
std::string complaint(const Node& node) {
  Graph graph{.name    = "wrong",
              .symbols = kSymbols,
              .nodes   = {{.op = Op::input, .type = {DType::fp32, {T, 6}}, .name = "x"},
                          {.op = Op::input, .type = {DType::bf16, {6}}, .name = "b"}}};
  graph.add(node);
  const Status status = verify(graph);
  return status ? "" : status.error().message;
}

TEST(Verify, NamesTheNodeThePlaceAndTheCure) {
  const Type x{DType::fp32, {T, 6}};
  const Place place{"mlp.cpp", 14};
  const Wrong wrongs[] = {
      {"operand after it", {Op::neg, x, {2}}, "does not come before"},
      {"operand count", {Op::add, x, {0}}, "takes 2 operands"},
      {"shapes", {Op::add, x, {0, 1}}, "broadcast one to the other's"},
      {"dtype of the result", {Op::neg, {DType::bf16, {T, 6}}, {0}}, "cast to change it"},
      {"unsupported dtype", {Op::cast, {DType::int32, {T, 6}}, {0}}, "fp32 or bf16"},
      {"reduced axes", {Op::sum, {DType::fp32, {T}}, {0}, {.axes = {2}}}, "lie below 2"},
      {"reduced shape", {Op::sum, {DType::fp32, {6}}, {0}, {.axes = {1}}}, "its shape is [T], not [6]"},
      {"permutation", {Op::permute, x, {0}, {.axes = {0, 0}}}, "no permutation"},
      {"reshape", {Op::reshape, {DType::fp32, {T, 7}}, {0}}, "same number of elements"},
      {"broadcast", {Op::broadcast, {DType::bf16, {T, 7}}, {1}, {.axes = {1}}}, "reshape an extent of 1"},
      {"slice beyond",
       {Op::slice, {DType::fp32, {T, 3}}, {0}, {.starts = {0, 2}, .steps = {1, 2}}},
       "leave axis 1"},
      {"slice of a symbol",
       {Op::slice, {DType::fp32, {4, 6}}, {0}, {.starts = {0, 0}, .steps = {1, 1}}},
       "takes all"},
      {"matmul", {Op::matmul, x, {0, 1}}, "reshape or permute"},
      {"constant", {Op::constant, {DType::fp32, {6}}}, "broadcast it"},
      {"iota", {Op::iota, x, {}, {.axes = {2}}}, "one axis below 2"},
      {"input's name", {.op = Op::input, .type = x, .name = "x"}, "rename one"},
  };
  for (Wrong wrong : wrongs) {
    wrong.node.place          = place;
    const std::string message = complaint(wrong.node);
    EXPECT_NE(message.find(wrong.cure), message.npos) << wrong.what << ": " << message;
    EXPECT_EQ(message.find("%2 " + std::string(row(wrong.node.op).name) + " (mlp.cpp:14)"), 0u) << message;
  }
}

TEST(Verify, SymbolsAndOutputs) {
  Graph graph{.name = "g", .symbols = {{.name = "T", .min = 5, .max = 7, .multiple = 8}}};
  EXPECT_NE(verify(graph).error().message.find("no value of T"), std::string::npos);
  graph.symbols = {{.name = "T"}, {.name = "T"}};
  EXPECT_NE(verify(graph).error().message.find("two symbols are called 'T'"), std::string::npos);
  graph.symbols = {};
  graph.outputs = {{"y", 0}};
  EXPECT_NE(verify(graph).error().message.find("which the program lacks"), std::string::npos);
}

TEST(Graph, WithASymbolsValueItIsTheSameProgram) {
  Program p("g");
  const Extent rows = p.symbol({.name = "T"});
  const Tensor x    = p.input("x", {rows, 2, 3});
  p.output("y", reshape(x, {rows * 6}));
  for (const int64_t value : {0, 1, 7}) {
    const Graph graph = with_symbol(p.graph(), 0, value);
    EXPECT_TRUE(verify(graph));
    EXPECT_TRUE(graph[1].type.shape[0].is(6 * value));
  }
}

TEST(Tensor, KeepsTheLineOfItsExpression) {
  Program p("g");
  const Tensor x = p.input("x", {4});
  const int line = __LINE__ + 1;
  const Tensor y = x * 2 + x;
  for (int id = 1; id < p.graph().size(); ++id)
    EXPECT_EQ(p.graph()[id].place.text(), "graph_test.cpp:" + std::to_string(line))
        << describe(p.graph(), id);
  EXPECT_EQ(y.node(), p.graph().size() - 1);
}

TEST(Tensor, AMistakeNamesItsLineAndCure) {
  Program p("g");
  const Tensor x = p.input("x", {4, 6}), b = p.input("b", {6}, DType::bf16), c = p.input("c", {5});
  const auto message = [](auto&& mistake) -> std::string {
    try {
      mistake();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  const auto expect = [](const std::string& message, const char* cure) {
    EXPECT_NE(message.find("graph_test.cpp:"), message.npos) << message;
    EXPECT_NE(message.find(cure), message.npos) << message;
  };
  expect(message([&] { x + b; }), "cast one to the other's dtype");
  expect(message([&] { x + c; }), "does not fit axes");
  expect(message([&] { matmul(x, x); }), "w must be bf16");
  expect(message([&] { slice(x, 2, 0, 1); }), "no axis 2");
}

TEST(Tensor, AValueReadOnTheHostBreaksTheGraph) {
  Program p("g");
  const Tensor x = p.input("x", {4});
  const Tensor s = sum(x, {0});
  const int line = __LINE__ + 2;
  try {
    if (s.item() > 0) FAIL();
  } catch (const GraphBreak& broken) {
    const std::string message = broken.what();
    EXPECT_EQ(message.find("graph_test.cpp:" + std::to_string(line)), 0u) << message;
    EXPECT_NE(message.find("%1 sum"), message.npos) << message;
    EXPECT_NE(message.find("Keep the value in the graph"), message.npos) << message;
  }
}

}  // namespace
}  // namespace fathom::compile
