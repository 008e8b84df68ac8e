#include "train/precision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "core/dtype.h"
#include "core/mxfp4_nvfp4.h"
#include "core/mxfp8.h"
#include "core/rng.h"

namespace fathom::train {
namespace {

struct Matrix {
  std::vector<float> numbers;
  int64_t rows, columns;

  Matrix(int64_t r, int64_t c, uint64_t seed = 1) : numbers(static_cast<size_t>(r * c)), rows(r), columns(c) {
    fill_normal(numbers.data(), r * c, seed, 0, 1);
  }
  View<const float, 2> view() const { return {numbers.data(), {rows, columns}}; }
};

std::vector<float> listed(View<const float, 2> x) {
  std::vector<float> numbers;
  for (int64_t r = 0; r < x.extent(0); ++r)
    for (int64_t c = 0; c < x.extent(1); ++c) numbers.push_back(x(r, c));
  return numbers;
}

TEST(Rounder, FullPrecisionCopiesNothing) {
  ThreadPool threads(2);
  const Matrix x(3, 5);
  std::vector<float> copy;
  Rounder rounder({}, 1, threads);
  EXPECT_EQ(rounder.over_columns(x.view(), Operand::weight, copy).data(), x.numbers.data());
  EXPECT_EQ(rounder.over_rows(x.view(), Operand::weight, true, copy).data(), x.numbers.data());
}

TEST(Rounder, BlocksLieAlongTheSum) {
  ThreadPool threads(2);
  const Matrix x(64, 96);
  std::vector<float> copy;
  Rounder rounder({.precision = Precision::mxfp8}, 1, threads);
  std::vector<float> wanted = x.numbers;
  std::vector<fp8_e4m3> values(wanted.size());
  std::vector<e8m0> scales(wanted.size() / kMxfp8Block);
  encode_mxfp8(wanted, values, scales);
  decode_mxfp8(values, scales, wanted);
  EXPECT_EQ(listed(rounder.over_columns(x.view(), Operand::activation, copy)), wanted);
  // Over the rows: what a transposed matrix has over its columns.
  Matrix turned(96, 64);
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t c = 0; c < 96; ++c) turned.numbers[static_cast<size_t>(c * 64 + r)] = x.view()(r, c);
  std::vector<float> other;
  const auto rows    = rounder.over_rows(x.view(), Operand::activation, false, copy);
  const auto columns = rounder.over_columns(turned.view(), Operand::activation, other);
  for (int64_t r = 0; r < 64; ++r)
    for (int64_t c = 0; c < 96; ++c) ASSERT_EQ(rows(r, c), columns(c, r));
}

TEST(Rounder, Fp8HasOneScaleATensorAndTwoFormats) {
  ThreadPool threads(1);
  const Matrix x(7, 11);
  float amax = 0;
  for (const float number : x.numbers) amax = std::max(amax, std::fabs(number));
  std::vector<float> copy;
  Rounder rounder({.precision = Precision::fp8}, 1, threads);
  const auto activation = listed(rounder.over_columns(x.view(), Operand::activation, copy));
  const auto gradient   = listed(rounder.over_columns(x.view(), Operand::gradient, copy));
  for (size_t i = 0; i < x.numbers.size(); ++i) {
    EXPECT_EQ(activation[i], static_cast<float>(fp8_e4m3(x.numbers[i] / (amax / 448))) * (amax / 448));
    EXPECT_EQ(gradient[i], static_cast<float>(fp8_e5m2(x.numbers[i] / (amax / 57344))) * (amax / 57344));
  }
}

TEST(Rounder, Nvfp4IsTheFormatsOwn) {
  ThreadPool threads(2);
  const Matrix x(3, 48);
  std::vector<float> copy, wanted = x.numbers;
  Rounder rounder({.precision = Precision::nvfp4}, 1, threads);
  std::vector<uint8_t> values(wanted.size() / 2), scales(wanted.size() / kNvfp4Block);
  const float scale = nvfp4_tensor_scale(wanted);
  encode_nvfp4(wanted, scale, values, scales);
  decode_nvfp4(values, scales, scale, wanted);
  const auto got = listed(rounder.over_columns(x.view(), Operand::activation, copy));
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6f) << i;
}

TEST(Rounder, SquareBlocksAreTheSameForBothProducts) {
  ThreadPool threads(2);
  const Matrix w(40, 56);  // with blocks that are cut
  std::vector<float> a, b;
  Rounder square({.precision = Precision::nvfp4}, 1, threads);
  EXPECT_EQ(listed(square.over_columns(w.view(), Operand::weight, a)),
            listed(square.over_rows(w.view(), Operand::weight, false, b)));
  Rounder lines({.precision = Precision::nvfp4, .square_blocks = false}, 1, threads);
  EXPECT_NE(listed(lines.over_columns(w.view(), Operand::weight, a)),
            listed(lines.over_rows(w.view(), Operand::weight, false, b)));
}

TEST(Rounder, StochasticRoundingIsRightOnAverage) {
  ThreadPool threads(2);
  const Matrix x(4, 32);
  std::vector<float> copy;
  std::vector<double> sum(x.numbers.size());
  std::set<float> seen;
  Rounder rounder({.precision = Precision::nvfp4}, 3, threads);
  constexpr int kDraws = 4000;
  for (int i = 0; i < kDraws; ++i) {
    rounder.next_step();
    const auto rounded = listed(rounder.over_columns(x.view(), Operand::gradient, copy));
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += rounded[j];
    seen.insert(rounded[5]);
  }
  EXPECT_EQ(seen.size(), 2u) << "a number between two goes to one of them";
  // A scale in E4M3 is up to 1/16 too small, so the largest of a block may saturate: it is left out.
  for (size_t block = 0; block < sum.size(); block += kNvfp4Block) {
    float largest = 0;
    for (size_t j = block; j < block + kNvfp4Block; ++j) largest = std::max(largest, std::fabs(x.numbers[j]));
    for (size_t j = block; j < block + kNvfp4Block; ++j)
      if (std::fabs(x.numbers[j]) < 0.9f * largest) {
        EXPECT_NEAR(sum[j] / kDraws, x.numbers[j], 0.02 * largest) << j;
      }
  }
  Rounder nearest({.precision = Precision::nvfp4, .stochastic_rounding = false}, 3, threads);
  const auto first = listed(nearest.over_columns(x.view(), Operand::gradient, copy));
  nearest.next_step();
  EXPECT_EQ(first, listed(nearest.over_columns(x.view(), Operand::gradient, copy)));
}

// The transform of both operands leaves their product as it is, and spreads a single large number over its
// block: beside it, small ones would be rounded to zero.
TEST(Rounder, HadamardSpreadsALargeNumber) {
  ThreadPool threads(1);
  Matrix x(16, 1), y(16, 1, 2);
  for (float& number : x.numbers) number *= 1e-2f;
  x.numbers[8]   = 1;
  double product = 0;
  for (size_t t = 0; t < 16; ++t) product += static_cast<double>(x.numbers[t]) * y.numbers[t];
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const bool hadamard : {false, true}) {
      Rounder rounder({.precision = Precision::nvfp4, .stochastic_rounding = false, .hadamard = hadamard},
                      seed, threads);
      std::vector<float> a, b;
      const auto of_x = rounder.over_rows(x.view(), Operand::gradient, true, a);
      const auto of_y = rounder.over_rows(y.view(), Operand::activation, true, b);
      int64_t zeros   = 0;
      double got      = 0;
      for (int64_t t = 0; t < 16; ++t) {
        zeros += of_x(t, 0) == 0;
        got += static_cast<double>(of_x(t, 0)) * of_y(t, 0);
      }
      EXPECT_EQ(zeros, hadamard ? 0 : 15) << seed;
      EXPECT_NEAR(got, product, 0.25) << seed << " " << hadamard;
    }
}

TEST(Rounder, TheSmallestNumbersMakeNoNaNs) {
  ThreadPool threads(1);
  for (const Precision precision : {Precision::fp8, Precision::mxfp8, Precision::nvfp4})
    for (const Operand operand : {Operand::activation, Operand::gradient}) {
      std::vector<float> x(64), copy;
      x[3] = 1e-42f;
      Rounder rounder({.precision = precision}, 1, threads);
      for (const float number : listed(rounder.over_columns({x.data(), {2, 32}}, operand, copy)))
        EXPECT_TRUE(number >= 0 && number < 1e-37f) << number;
    }
}

TEST(Rounder, ZerosAndEmptyMatricesStay) {
  ThreadPool threads(2);
  for (const Precision precision : {Precision::bf16, Precision::fp8, Precision::mxfp8, Precision::nvfp4}) {
    Rounder rounder({.precision = precision}, 1, threads);
    const Matrix none(0, 16), zeros(5, 17, 1);
    std::vector<float> copy, nothing(5 * 17);
    EXPECT_EQ(rounder.over_columns(none.view(), Operand::gradient, copy).extent(0), 0);
    EXPECT_EQ(listed(rounder.over_columns({nothing.data(), {5, 17}}, Operand::gradient, copy)), nothing);
    EXPECT_EQ(listed(rounder.over_rows({nothing.data(), {5, 17}}, Operand::gradient, true, copy)), nothing);
  }
}

}  // namespace
}  // namespace fathom::train
