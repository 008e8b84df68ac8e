// The formats that the precision experiments round to, and the rules that choose among them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "experiments/ch19_adaptive/precision_by_amax/site_formats.h"
#include "experiments/ch19_adaptive/precision_by_entropy/row_formats.h"
#include "experiments/ch19_adaptive/rounded_forward.h"

namespace fathom::lab::rounded_forward {
namespace {

std::vector<float> normal(int64_t columns, uint64_t seed, double deviation = 1) {
  std::vector<float> row(static_cast<size_t>(columns));
  fill_normal(row.data(), columns, seed, 0, deviation);
  return row;
}

// The nearest number of the format for any scale: no code of E4M3 is further than 2^-4 of a number, none of
// bf16 further than 2^-9; a block of NVFP4 has 15 numbers between -6 and 6 times its scale.
TEST(RoundRow, ErrsAsMuchAsTheFormatDoes) {
  for (const int64_t columns : {16, 48, 256})
    for (const double deviation : {1e-3, 1.0, 300.0}) {
      const std::vector<float> row = normal(columns, 3, deviation);
      const double largest         = std::abs(*std::max_element(
                  row.begin(), row.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
      for (const Format format : {Format::bf16, Format::fp8, Format::fp4}) {
        std::vector<float> rounded = row;
        round_row(format, rounded.data(), columns);
        for (size_t i = 0; i < row.size(); ++i) {
          const double error = std::abs(static_cast<double>(rounded[i]) - row[i]),
                       x     = std::abs(static_cast<double>(row[i]));
          if (format == Format::bf16) {
            EXPECT_LE(error, x / 256);
          }
          // Below the smallest normal number, 2^-6 with a largest of 448, steps do not shrink further.
          if (format == Format::fp8) {
            EXPECT_LE(error, std::max(x / 16, largest / 448 / 1024) * 1.0001);
          }
          if (format == Format::fp4) {
            double of_block = 0;
            for (size_t j = i / 16 * 16; j < i / 16 * 16 + 16; ++j)
              of_block = std::max(of_block, std::abs(static_cast<double>(row[j])));
            EXPECT_LE(error, of_block / 6 * 1.07);  // half of the widest step, and the scale's own rounding
          }
        }
        const Squares squares = squares_of(format, row.data(), columns);
        double numbers = 0, errors = 0;
        for (size_t i = 0; i < row.size(); ++i) {
          numbers += static_cast<double>(row[i]) * row[i];
          errors += (static_cast<double>(rounded[i]) - row[i]) * (static_cast<double>(rounded[i]) - row[i]);
        }
        EXPECT_NEAR(squares.numbers, numbers, 1e-9 * numbers);
        EXPECT_NEAR(squares.errors, errors, 1e-9 * numbers);
      }
    }
}

// What they lose does not depend on how large the numbers are: the premise that the amax rule breaks.
TEST(RoundRow, LosesTheSameAtAnySize) {
  for (const Format format : {Format::fp8, Format::fp4}) {
    const double small = squares_of(format, normal(256, 7, 0.0625).data(), 256).relative_error(),
                 large = squares_of(format, normal(256, 7, 64).data(), 256).relative_error();
    EXPECT_NEAR(small / large, 1, 0.01);
  }
  const double fp4 = squares_of(Format::fp4, normal(4096, 1).data(), 4096).relative_error(),
               fp8 = squares_of(Format::fp8, normal(4096, 1).data(), 4096).relative_error();
  EXPECT_NEAR(fp4, 0.095, 0.01);
  EXPECT_NEAR(fp8, 0.026, 0.004);
  const std::vector<float> zeros(32);
  EXPECT_EQ(squares_of(Format::fp4, zeros.data(), 32).relative_error(), 0);
  EXPECT_EQ(squares_of(Format::fp8, zeros.data(), 32).relative_error(), 0);
}

TEST(RoundRow, CountsTheScales) {
  EXPECT_EQ(bits_of(Format::bf16, 256), 16);
  EXPECT_EQ(bits_of(Format::fp8, 256), 8 + 32.0 / 256);
  EXPECT_EQ(bits_of(Format::fp4, 256), 4 + 8.0 / 16 + 32.0 / 256);
}

TEST(PrecisionByAmax, HasItsThresholdsAndItsBytes) {
  using precision_by_amax::format_by_amax;
  EXPECT_EQ(format_by_amax(0), Format::fp4);
  EXPECT_EQ(format_by_amax(5.99), Format::fp4);
  EXPECT_EQ(format_by_amax(6), Format::fp8);
  EXPECT_EQ(format_by_amax(239.9), Format::fp8);
  EXPECT_EQ(format_by_amax(240), Format::bf16);
  const std::vector<Format> of = {Format::bf16, Format::fp4, Format::fp8, Format::fp4};
  EXPECT_EQ(precision_by_amax::in_order_of({3, 9, 1, 2}, of),
            (std::vector<Format>{Format::fp8, Format::bf16, Format::fp4, Format::fp4}));
}

TEST(PrecisionByEntropy, TheUpperHalfIsInFp8) {
  using precision_by_entropy::upper_half_in_fp8;
  EXPECT_TRUE(upper_half_in_fp8({}).empty());
  EXPECT_EQ(upper_half_in_fp8({1}), (std::vector<Format>{Format::fp4}));
  EXPECT_EQ(upper_half_in_fp8({3, 1, 2}), (std::vector<Format>{Format::fp8, Format::fp4, Format::fp4}));
  EXPECT_EQ(upper_half_in_fp8({0, 0, 0, INFINITY}),
            (std::vector<Format>{Format::fp4, Format::fp4, Format::fp8, Format::fp8}));
}

}  // namespace
}  // namespace fathom::lab::rounded_forward
