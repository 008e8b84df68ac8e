#include "compile/function.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compile/explain.h"
#include "compile/programs.h"
#include "core/expect.h"
#include "core/thread_pool.h"

namespace fathom::compile {
namespace {

// y = 2 x + r, of any shape.
const Trace kTrace = [](Program& p, const std::vector<Tensor>& in) { p.output("y", 2 * in[0] + in[1]); };

struct Call {
  std::vector<float> x, r, y;
  std::vector<int64_t> extents;

  explicit Call(std::vector<int64_t> shape) : extents(std::move(shape)) {
    for (auto* array : {&x, &r, &y}) array->assign(static_cast<size_t>(count(extents)), NAN);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i), r[i] = 3;
  }
  Array in(std::vector<float>& numbers) { return {DType::fp32, numbers.data(), extents}; }
  void run(Function& f, ThreadPool& pool) {
    f.run({in(x), in(r)}, {in(y)}, pool);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], 2 * x[i] + 3) << i;
  }
};

TEST(Function, ASecondValueMakesAnExtentASymbol) {
  ThreadPool pool(1);
  Function f("axpy", kTrace);
  for (const int64_t rows : {5, 5, 7, 9, 1024, 5, 1, 1, 0}) Call({rows, 3}).run(f, pool);
  // 5 as a constant, any from 2, 1, 0.
  ASSERT_EQ(f.entries().size(), 4u);
  EXPECT_EQ(f.calls(), 9);
  const std::vector<int64_t> hits = {1, 3, 1, 0};  // the last entry goes first: 5 is served as a symbol
  for (size_t e = 0; e < 4; ++e) EXPECT_EQ(f.entries()[e].hits, hits[e]) << e;
  EXPECT_EQ(f.entries()[1].because, "in0.extent(0) == 5, and is 7");
  EXPECT_EQ(guards(f.entries()[1]),
            (std::vector<std::string>{"in0 is fp32[s0, 3], row-major", "in1 is fp32[s0, 3], row-major",
                                      "s0 in 2..1099511627776"}));
  EXPECT_NE(explain(f).find("9 calls, 4 entries"), std::string::npos);
}

TEST(Function, WithoutSymbolsEveryShapeIsCompiled) {
  ThreadPool pool(1);
  Function f("axpy", kTrace, {.symbols = false});
  for (const int64_t rows : {5, 7, 9, 11, 5}) Call({rows, 3}).run(f, pool);
  EXPECT_EQ(f.entries().size(), 4u);
}

// With a symbol for its one varied extent the sum would not fit a constant.
TEST(Function, AnExtentThatVariedMayMeetOneThatNeverDid) {
  ThreadPool pool(1);
  Function f("sum", [](Program& p, const std::vector<Tensor>& in) { p.output("y", in[0] + in[1]); });
  std::vector<float> x = {0, 1, 2, 3}, one = {10}, four = {1, 2, 3, 4}, y(4);
  const auto run = [&](std::vector<float>& other) {
    f.run({{DType::fp32, x.data(), {4}}, {DType::fp32, other.data(), {std::ssize(other)}}},
          {{DType::fp32, y.data(), {4}}}, pool);
  };
  run(one);
  EXPECT_EQ(y, (std::vector<float>{10, 11, 12, 13}));
  run(four);
  EXPECT_EQ(y, (std::vector<float>{1, 3, 5, 7}));
}

TEST(Function, TooManyEntriesAreAnErrorThatNamesTheGuards) {
  ThreadPool pool(1);
  Function f("axpy", kTrace, {.symbols = false, .max_entries = 2});
  Call({2}).run(f, pool);
  Call({3}).run(f, pool);
  Call({2}).run(f, pool);
  try {
    Call({4}).run(f, pool);
    FAIL();
  } catch (const ContractError& error) {
    const std::string message = error.what();
    for (const char* part : {"axpy would be compiled a 3th time", "in0.extent(0) == 3, and is 4",
                             "in0.extent(0) == 2, and is 3"})
      EXPECT_NE(message.find(part), message.npos) << message;
  }
}

TEST(Function, DtypeRankAndStridesAreGuarded) {
  ThreadPool pool(1);
  Function f("axpy", kTrace);
  Call call({2, 3});
  call.run(f, pool);
  Call({6}).run(f, pool);
  EXPECT_EQ(f.entries()[1].because, "in0.rank == 2, and is 1");

  // A transposed x: packed, by an entry of its own.
  std::vector<float> y(6);
  const Array columns{DType::fp32, call.x.data(), {2, 3}, {1, 2}};
  const auto transposed = [&] {
    f.run({columns, call.in(call.r)}, {{DType::fp32, y.data(), {2, 3}}}, pool);
    EXPECT_EQ(y, (std::vector<float>{3, 7, 11, 5, 9, 13}));
  };
  transposed();
  transposed();
  ASSERT_EQ(f.entries().size(), 3u);
  EXPECT_EQ(f.entries()[2].hits, 1);
  EXPECT_EQ(f.entries()[2].row_major, (std::vector<bool>{false, true}));

  std::vector<bf16> x(6, bf16(1.5f)), r(6, bf16(1.0f)), sum(6);
  f.run({{DType::bf16, x.data(), {2, 3}}, {DType::bf16, r.data(), {2, 3}}},
        {{DType::bf16, sum.data(), {2, 3}}}, pool);
  EXPECT_EQ(static_cast<float>(sum[5]), 4);
  EXPECT_EQ(f.entries().size(), 4u);
  // Mixed dtypes are the trace's mistake.
  EXPECT_THROW(f.run({{DType::bf16, x.data(), {2, 3}}, call.in(call.r)}, {call.in(call.y)}, pool),
               ContractError);
}

TEST(Function, OutputsAreChecked) {
  ThreadPool pool(1);
  Function f("axpy", kTrace);
  Call call({2, 3});
  const auto message = [&](const std::vector<Array>& outputs) -> std::string {
    try {
      f.run({call.in(call.x), call.in(call.r)}, outputs, pool);
    } catch (const ContractError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message({}).find("1 outputs"), std::string::npos);
  EXPECT_NE(message({{DType::fp32, call.y.data(), {6}}}).find("output 'y' is fp32[2, 3]"), std::string::npos);
  EXPECT_NE(message({call.in(call.x)}).find("lies over an input"), std::string::npos);
}

TEST(Function, AProgramsGraphServesWhatItsSymbolsAdmit) {
  ThreadPool pool(1);
  Program p("pairs");
  const Extent T = p.symbol({.name = "T", .min = 0, .max = 8, .multiple = 1});
  const Tensor x = p.input("x", {2 * T}), r = p.input("r", {2 * T});
  p.output("y", 2 * x + r);
  Function f(p.graph());
  for (const int64_t half : {0, 1, 7, 5, 2}) Call({2 * half}).run(f, pool);
  EXPECT_EQ(f.entries().size(), 3u);  // T 0, T 1, the rest
  for (const int64_t extent : {3, 18}) {
    try {
      Call({extent}).run(f, pool);
      FAIL();
    } catch (const ContractError& error) {
      EXPECT_NE(std::string(error.what()).find("x.extent(0) == 2*T, and is " + std::to_string(extent)),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(Function, ABreakInTheTraceIsAnError) {
  ThreadPool pool(1);
  Function f("broken", [](Program& p, const std::vector<Tensor>& in) {
    if (sum(in[0], {0}).item() > 0) p.output("y", in[0] + in[1]);
  });
  Call call({4});
  EXPECT_THROW(call.run(f, pool), GraphBreak);
  EXPECT_TRUE(f.entries().empty());
}

TEST(Function, AllBreaksOfATraceAreNamed) {
  const int line    = __LINE__ + 2;
  const Trace trace = [](Program& p, const std::vector<Tensor>& in) {
    if (sum(in[0], {0}).item() > 0) p.output("y", in[0] * in[1]);
    p.output("z", in[0] * static_cast<double>(reduce_max(in[1], {0}).item()));
  };
  Call call({4});
  const auto breaks = breaks_of("broken", trace, {call.in(call.x), call.in(call.r)});
  ASSERT_EQ(breaks.size(), 2u);
  EXPECT_EQ(breaks[0].find(fmt::format("function_test.cpp:{}: the host reads a value of %2 sum", line)), 0u)
      << breaks[0];
  EXPECT_EQ(
      breaks[1].find(fmt::format("function_test.cpp:{}: the host reads a value of %4 reduce_max", line + 1)),
      0u)
      << breaks[1];
  EXPECT_TRUE(breaks_of("whole", kTrace, {call.in(call.x), call.in(call.r)}).empty());
}

}  // namespace
}  // namespace fathom::compile
