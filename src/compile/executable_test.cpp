#include "compile/executable.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "compile/canonical.h"
#include "compile/random_graph.h"
#include "compile/run_numbers.h"
#include "compile/text.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"

namespace fathom::compile {
namespace {

TEST(Executable, RandomProgramsHaveTheInterpretersBits) {
  ThreadPool one(1), two(2);
  int fused_launches = 0, launches = 0;
  int64_t slabs = 0, least = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = canonical(random_graph(seed, 20, Values::whole));
    Executable fused(graph, fuse(graph)), eager(graph, unfused(graph));
    fused_launches += static_cast<int>(fused.plan().groups.size());
    launches += static_cast<int>(eager.plan().groups.size());
    for (const int64_t T : {0, 1, 7, 257}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", T " << T << "\n" << print(graph));
      const std::vector<int64_t> symbols = {T};
      const auto inputs                  = random_inputs(graph, symbols, seed, Values::whole);
      const auto expected                = interpret(graph, symbols, inputs);
      EXPECT_EQ(run(eager, symbols, inputs, one), expected) << "eager";
      EXPECT_EQ(run(fused, symbols, inputs, one), expected) << "fused";
      EXPECT_EQ(run(fused, symbols, inputs, two), expected) << "fused, two threads";
      if (HasFailure()) return;
      slabs += fused.slab(symbols).bytes;
      least += fused.least_slab(symbols);
    }
  }
  EXPECT_LT(fused_launches, launches / 2);
  EXPECT_LE(static_cast<double>(slabs), 1.05 * static_cast<double>(least));
}

// A program of every pointwise op and both reductions, against double precision on every instruction set.
TEST(Executable, EveryOpIsWithinItsRoundings) {
  Program p("ops");
  const Extent T = p.symbol({.name = "T"});
  const Tensor x = p.input("x", {T, 37}), y = p.input("y", {T, 37});
  const Tensor positive = abs(x) + 0.5;
  p.output("exp", exp(x));
  p.output("sqrt", sqrt(positive));
  p.output("rsqrt", rsqrt(positive));
  p.output("sigmoid", sigmoid(x));
  p.output("tanh", tanh(x));
  p.output("div", y / positive);
  p.output("min", min(x, y));
  p.output("sum", sum(positive, {1}));
  p.output("column_sum", sum(positive, {0}));
  p.output("max", reduce_max(x * y, {0, 1}));
  const Graph graph                  = canonical(p.graph());
  const std::vector<int64_t> symbols = {29};
  const auto inputs                  = random_inputs(graph, symbols, 3, Values::any);
  std::map<std::string, Numbers> finite;
  for (const auto& [name, numbers] : inputs)
    for (const double number : numbers) finite[name].push_back(std::isfinite(number) ? 3 * number : 80);
  const auto expected = interpret(graph, symbols, finite, Arithmetic::fp64);
  ThreadPool pool(2);
  kernels::for_each_simd_target([&] {
    Executable executable(graph, fuse(graph));
    for (const auto& [name, got] : run(executable, symbols, finite, pool))
      for (size_t i = 0; i < got.size(); ++i)
        // Eight roundings, and a sum of at most 37 positive numbers.
        ASSERT_LE(std::abs(got[i] - expected.at(name)[i]), 48 * 0x1p-24 * std::abs(expected.at(name)[i]))
            << name << " at " << i << " of " << finite.at("x")[i];
  });
}

TEST(Executable, SpecialNumbers) {
  Program p("special");
  const Tensor x = p.input("x", {5});
  p.output("exp", exp(x));
  p.output("sigmoid", sigmoid(x));
  p.output("tanh", tanh(x));
  p.output("bf16", x.to(DType::bf16));
  ThreadPool pool(1);
  const Graph graph     = p.graph();
  const Numbers numbers = {INFINITY, -INFINITY, 200, -200, NAN};
  kernels::for_each_simd_target([&] {
    Executable executable(graph, fuse(graph));
    const auto outputs = run(executable, {}, {{"x", numbers}}, pool);
    const auto expect  = [&](const char* name, const Numbers& expected) {
      const Numbers& got = outputs.at(name);
      for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got[i], expected[i]) << name << " of " << numbers[i];
      EXPECT_TRUE(std::isnan(got[4])) << name;
    };
    expect("exp", {INFINITY, 0, INFINITY, 0});
    expect("sigmoid", {1, 0, 1, 0});
    expect("tanh", {1, -1, 1, -1});
    expect("bf16", {INFINITY, -INFINITY, 200, -200});
  });
}

// Rounding to bf16 in vectors is core's, for every kind of number.
TEST(Executable, Bf16IsRoundedAsCoreDoes) {
  Program p("round");
  const Extent T = p.symbol({.name = "T"});
  p.output("y", p.input("x", {T}).to(DType::bf16).to(DType::fp32));
  Executable executable(p.graph(), fuse(p.graph()));
  Numbers numbers;
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 0x10013) {
    numbers.push_back(std::bit_cast<float>(bits));
    numbers.push_back(-std::bit_cast<float>(bits | 0x8000));  // ties
  }
  ThreadPool pool(1);
  kernels::for_each_simd_target([&] {
    const auto got =
        run(executable, std::vector<int64_t>{static_cast<int64_t>(numbers.size())}, {{"x", numbers}}, pool);
    for (size_t i = 0; i < numbers.size(); ++i)
      ASSERT_EQ(got.at("y")[i], static_cast<float>(bf16(static_cast<float>(numbers[i])))) << numbers[i];
  });
}

// Sizes around a block, a vector and a chunk of a matmul's rows.
TEST(Executable, RowsOfAnyLength) {
  ThreadPool pool(2);
  for (const int64_t width : {1, 7, 16, 31, 255, 256, 257, 1023, 1024, 1025, 4099}) {
    Program p("rows");
    const Extent T = p.symbol({.name = "T"});
    const Tensor x = p.input("x", {T, width}), w = p.input("w", {width}),
                 r = p.input("r", {T, width}, DType::bf16);
    const Tensor s = x + r.to(DType::fp32);
    p.output("s", s);
    p.output("centred", (s - sum(s, {1}, Keep::yes)) * w);
    const Tensor k = x * w - 2;  // needed again after its sum, and not stored
    p.output("kept", k + sum(k, {1}, Keep::yes) * k);
    p.output("sums", 2 * sum(s, {1}, Keep::yes));  // [T, 1], stored by a tape whose rows are [T]
    p.output("narrow", max(s * w, 1).to(DType::bf16));
    const Graph graph = canonical(p.graph());
    Executable executable(graph, fuse(graph));
    EXPECT_EQ(executable.plan().groups.size(), 2u) << width;  // kept reads none of the others
    for (const int64_t T_value : {0, 1, 2, 67}) {
      SCOPED_TRACE(testing::Message() << T_value << " x " << width);
      const std::vector<int64_t> symbols = {T_value};
      const auto inputs                  = random_inputs(graph, symbols, 5, Values::whole);
      EXPECT_EQ(run(executable, symbols, inputs, pool), interpret(graph, symbols, inputs));
    }
  }
}

// Slices of slices with other movements between them, so that none is folded into another.
TEST(Executable, MovementIsStrides) {
  Program p("movement");
  const Extent T   = p.symbol({.name = "T"});
  const Tensor x   = p.input("x", {T, 11, 7});
  const Tensor odd = permute(slice(x, 1, 1, 5, 2), {0, 2, 1});
  const Tensor y   = slice(slice(odd, 2, 1, 2, 2), 1, 2, 3, 2);
  p.output("y", -y);
  p.output("copied", broadcast(reshape(y, {T, 1, 3, 2}), {2, T, 1, 3, 2}, {1, 2, 3, 4}));
  p.output("sums", sum(y, {0, 2}));
  const Graph graph = canonical(p.graph());
  Executable executable(graph, fuse(graph));
  ThreadPool pool(2);
  for (const int64_t rows : {0, 1, 13}) {
    const std::vector<int64_t> symbols = {rows};
    const auto inputs                  = random_inputs(graph, symbols, 5, Values::whole);
    EXPECT_EQ(run(executable, symbols, inputs, pool), interpret(graph, symbols, inputs)) << rows;
  }
}

// Pads go from memory to memory: beside a slice of everything, with nothing before them and with ops that
// read them.
TEST(Executable, PadsLieBetweenLaunches) {
  ThreadPool pool(2);
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    Program p("pads");
    const Extent T = p.symbol({.name = "T"});
    const Tensor x = p.input("x", {T, 5, 3}, dtype), one = p.input("one", {}, dtype);
    p.output("inner", pad(x, {T, 5, 9}, {0, 0, 2}, {1, 1, 3}) + 1);
    p.output("outer", pad(x + x, {T, 31, 3}, {0, 4, 0}, {1, 6, 1}));
    p.output("permuted", pad(permute(x, {2, 0, 1}), {4, T, 11}, {1, 0, 0}, {1, 1, 2}));
    p.output("nothing", pad(slice(x, 2, 0, 0), {T, 5, 2}, {0, 0, 1}, {1, 1, 1}));
    p.output("whole", pad(x, {T, 5, 3}, {0, 0, 0}, {1, 1, 1}));
    p.output("scalar", pad(one, {}, {}, {}));
    const Graph graph = canonical(p.graph());
    Executable fused(graph, fuse(graph)), eager(graph, unfused(graph));
    for (const int64_t rows : {0, 1, 13}) {
      const std::vector<int64_t> symbols = {rows};
      const auto inputs                  = random_inputs(graph, symbols, 5, Values::whole);
      const auto expected                = interpret(graph, symbols, inputs);
      EXPECT_EQ(run(fused, symbols, inputs, pool), expected) << rows;
      EXPECT_EQ(run(eager, symbols, inputs, pool), expected) << rows;
    }
  }
}

TEST(Executable, GreaterIsOneOrZero) {
  Program p("greater");
  const Tensor x = p.input("x", {6}), y = p.input("y", {6});
  p.output("greater", greater(x, y));
  const Graph graph    = p.graph();
  const Numbers x_data = {1, 2, -0.0, NAN, INFINITY, 1}, y_data = {2, 1, 0.0, 1, 1, NAN};
  ThreadPool pool(1);
  EXPECT_EQ(interpret(graph, {}, {{"x", x_data}, {"y", y_data}}).at("greater"), (Numbers{0, 1, 0, 0, 1, 0}));
  kernels::for_each_simd_target([&] {
    Executable executable(graph, fuse(graph));
    EXPECT_EQ(run(executable, {}, {{"x", x_data}, {"y", y_data}}, pool).at("greater"),
              (Numbers{0, 1, 0, 0, 1, 0}));
  });
}

TEST(Executable, AMatmulIsFinishedInChunksOfRows) {
  ThreadPool pool(2);
  Program p("chunks");
  const Extent T = p.symbol({.name = "T"});
  const Tensor x = p.input("x", {T, 24}, DType::bf16), w = p.input("w", {600, 24}, DType::bf16),
               b = p.input("b", {600}, DType::bf16), r = p.input("r", {T, 300});
  const auto [gate, up] = unzip(matmul(x, w) + b.to(DType::fp32));
  p.output("y", max(gate, 0) * up + r);
  const Graph graph = canonical(p.graph());
  Executable executable(graph, fuse(graph)), eager(graph, unfused(graph));
  ASSERT_EQ(executable.plan().groups.size(), 1u);
  EXPECT_STREQ(executable.plan().groups[0].rule, "R3");
  for (const int64_t rows : {0, 1, 95, 96, 97, 193}) {
    const std::vector<int64_t> symbols = {rows};
    const auto inputs                  = random_inputs(graph, symbols, 5, Values::whole);
    const auto expected                = interpret(graph, symbols, inputs);
    EXPECT_EQ(run(executable, symbols, inputs, pool), expected) << rows;
    EXPECT_EQ(run(eager, symbols, inputs, pool), expected) << rows;
  }
}

}  // namespace
}  // namespace fathom::compile
