#include "compile/interpret.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compile/tensor.h"
#include "core/expect.h"

namespace fathom::compile {
namespace {

Numbers of(const Program& p, std::map<std::string, Numbers> inputs, std::vector<int64_t> symbols = {},
           Arithmetic arithmetic = Arithmetic::typed) {
  return interpret(p.graph(), symbols, inputs, arithmetic).at("y");
}

TEST(Interpret, PointwiseByHand) {
  Program p("g");
  const Tensor x = p.input("x", {3});
  p.output("y", clamp(x * 2 - 1, -2, 3) / 4);
  EXPECT_EQ(of(p, {{"x", {-1, 1, 7}}}), (Numbers{-0.5, 0.25, 0.75}));
}

TEST(Interpret, EveryResultIsRoundedToItsDtype) {
  Program p("g");
  const Tensor x = p.input("x", {1}, DType::bf16);
  p.output("y", (x + 0.01).to(DType::fp32) + 1e-9);
  const float sum = static_cast<float>(bf16(1 + static_cast<float>(bf16(0.01f))));
  EXPECT_EQ(of(p, {{"x", {1}}}), (Numbers{sum + 1e-9f}));
  EXPECT_EQ(of(p, {{"x", {1}}}, {}, Arithmetic::fp64), (Numbers{sum + 1e-9}));
}

TEST(Interpret, ReductionsAtSymbolicExtents) {
  Program p("g");
  const Extent T = p.symbol({.name = "T"});
  const Tensor x = p.input("x", {T, 3});
  p.output("y", sum(x, {0}));
  p.output("z", reduce_max(x, {0, 1}));
  for (const int64_t rows : {0, 1, 7}) {
    Numbers numbers;
    for (int64_t i = 0; i < 3 * rows; ++i) numbers.push_back(static_cast<double>(i));
    const auto outputs = interpret(p.graph(), std::vector<int64_t>{rows}, {{"x", numbers}});
    const double n = static_cast<double>(rows), first = 3 * n * (n - 1) / 2;
    EXPECT_EQ(outputs.at("y"), (Numbers{first, first + n, first + 2 * n}));
    EXPECT_EQ(outputs.at("z"), (Numbers{rows ? 3 * n - 1 : -std::numeric_limits<double>::infinity()}));
  }
}

TEST(Interpret, Movement) {
  Program p("g");
  const Tensor x         = p.input("x", {2, 4});
  const auto [even, odd] = unzip(x);
  p.output("y", permute(odd - even, {1, 0}));
  p.output("z", broadcast(reshape(even, {4}), {4, 2}, {0}));
  const auto outputs = interpret(p.graph(), {}, {{"x", {1, 2, 3, 5, 7, 11, 13, 19}}});
  EXPECT_EQ(outputs.at("y"), (Numbers{1, 4, 2, 6}));
  EXPECT_EQ(outputs.at("z"), (Numbers{1, 1, 3, 3, 7, 7, 13, 13}));
}

TEST(Interpret, MatmulTakesWeightsAsRowsOfOutputs) {
  Program p("g");
  const Tensor x = p.input("x", {2, 3}), w = p.input("w", {1, 3}, DType::bf16);
  p.output("y", matmul(x, w) + p.iota({2, 1}, 0));
  EXPECT_EQ(of(p, {{"x", {1, 2, 3, 4, 5, 6}}, {"w", {1, 0, -1}}}), (Numbers{-2, -1}));
}

TEST(Interpret, RmsNorm) {
  Program p("g");
  const Tensor x = p.input("x", {1, 2}), w = p.input("w", {2});
  p.output("y", rms_norm(x, w, 0.5));
  const double scale = 1 / std::sqrt(12.5 + 0.5);
  const Numbers y    = of(p, {{"x", {3, -4}}, {"w", {2, 1}}}, {}, Arithmetic::fp64);
  EXPECT_NEAR(y[0], 6 * scale, 1e-15);
  EXPECT_NEAR(y[1], -4 * scale, 1e-15);
}

TEST(Interpret, AMissingOrShortInputIsABrokenContract) {
  Program p("g");
  p.output("y", p.input("x", {2}) + 1);
  EXPECT_THROW(of(p, {}), ContractError);
  EXPECT_THROW(of(p, {{"x", {1}}}), ContractError);
}

}  // namespace
}  // namespace fathom::compile
