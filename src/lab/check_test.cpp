#include "lab/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/rng.h"

namespace fathom::lab {
namespace {

Finding check_all(std::vector<float>& out, const std::function<Sum(int64_t)>& expected) {
  Checker checker({});
  checker.values("out", View<float, 1>(out.data(), {static_cast<int64_t>(out.size())}), expected);
  return checker.findings().at(0);
}

// A dot product in float must pass and one in bf16 must not, at every length: the bound has to follow K.
TEST(Tolerance, AcceptsFloatAccumulationAndRefusesBf16) {
  for (const int64_t k : {int64_t{1}, int64_t{2}, int64_t{31}, int64_t{1000}, int64_t{100000}}) {
    constexpr int64_t kOutputs = 100;
    std::vector<float> honest(kOutputs), rounded(kOutputs);
    std::vector<Sum> want(kOutputs);
    uint32_t state  = 12345;
    const auto next = [&] {
      state = state * 1664525u + 1013904223u;
      return static_cast<float>(state >> 8) / 16777216.0f * 2 - 1;
    };
    for (int64_t o = 0; o < kOutputs; ++o) {
      float sum = 0;
      bf16 low(0.0f);
      Sum exact{0, 0, k, DType::fp32};
      for (int64_t i = 0; i < k; ++i) {
        const float a = next(), b = next();
        sum += a * b;
        low = bf16(static_cast<float>(low) + static_cast<float>(bf16(a)) * static_cast<float>(bf16(b)));
        exact.value += static_cast<double>(a) * b;
        exact.magnitude += std::abs(static_cast<double>(a) * b);
      }
      honest[o]  = sum;
      rounded[o] = static_cast<float>(low);
      want[o]    = exact;
    }
    EXPECT_TRUE(check_all(honest, [&](int64_t i) { return want[i]; }).ok()) << k;
    EXPECT_FALSE(check_all(rounded, [&](int64_t i) { return want[i]; }).ok()) << k;
  }
}

// Errors that are each below the bound, but all as large as it allows, are not due to rounding.
TEST(Tolerance, RmsRuleCatchesWhatTheBoundLetsThrough) {
  std::vector<float> out(64);
  const auto expected = [](int64_t i) { return Sum{1.0 + static_cast<double>(i), 1000, 10000, DType::fp32}; };
  const double bound  = 4 * 100 * 0x1p-24 * 1000;
  for (int64_t i = 0; i < 64; ++i) out[i] = static_cast<float>(1.0 + static_cast<double>(i) + 0.9 * bound);
  const Finding finding = check_all(out, expected);
  EXPECT_EQ(finding.wrong, 0);
  EXPECT_FALSE(finding.ok());
}

TEST(Exact, MovedDataMustBeBitEqualAfterRounding) {
  std::vector<float> out = {0.1f, 0.2f};
  Checker checker({});
  checker.values("out", View<float, 1>(out.data(), {2}), [](int64_t i) { return i == 0 ? 0.1 : 0.2; });
  EXPECT_TRUE(checker.findings()[0].ok());
  out[1] = std::nextafter(0.2f, 1.0f);
  Checker again({});
  again.values("out", View<float, 1>(out.data(), {2}), [](int64_t i) { return i == 0 ? 0.1 : 0.2; });
  EXPECT_EQ(again.findings()[0].wrong, 1);
}

TEST(Exact, IntegersBeyondDoublePrecision) {
  std::vector<int64_t> out = {(int64_t{1} << 60) + 1};
  Checker checker({});
  checker.values("ids", View<int64_t, 1>(out.data(), {1}), [](int64_t) { return int64_t{1} << 60; });
  EXPECT_EQ(checker.findings()[0].wrong, 1);
  EXPECT_NE(checker.findings()[0].first_wrong.find("ids(0)"), std::string::npos);
}

TEST(NonFinite, NaNAndInfinityAlwaysFailUnlessExpected) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const double bad : {inf, -inf, nan}) {
    std::vector<float> out = {static_cast<float>(bad)};
    const Finding finding  = check_all(out, [](int64_t) { return Sum{1, 1e30, 1000000, DType::fp32}; });
    EXPECT_EQ(finding.wrong, 1);
    EXPECT_EQ(finding.nans, 1);
    EXPECT_TRUE(check_all(out, [&](int64_t) { return Sum{bad, 1, 1, DType::fp32}; }).ok());
  }
  std::vector<float> number = {1};
  EXPECT_FALSE(check_all(number,
                         [&](int64_t) {
                           return Sum{nan, 1, 1, DType::fp32};
                         })
                   .ok())
      << "a NaN in the reference is no wildcard";
}

TEST(Choose, SamplesEdgesAndEverySlice) {
  for (const int64_t n :
       {int64_t{0}, int64_t{1}, int64_t{191}, int64_t{192}, int64_t{193}, int64_t{1000003}}) {
    std::vector<int32_t> out(static_cast<size_t>(n), 7);
    Checker::Options options{.sample = 192, .seed = 42};
    Checker checker(options);
    std::vector<int64_t> looked;
    checker.values("out", View<int32_t, 1>(out.data(), {n}), [&](int64_t i) {
      looked.push_back(i);
      return int64_t{7};
    });
    EXPECT_EQ(static_cast<int64_t>(looked.size()), std::min<int64_t>(n, 192));
    if (n == 0) continue;
    EXPECT_TRUE(std::count(looked.begin(), looked.end(), 0));
    EXPECT_TRUE(std::count(looked.begin(), looked.end(), n - 1));
    std::sort(looked.begin(), looked.end());
    EXPECT_GE(looked.front(), 0);
    EXPECT_LT(looked.back(), n);
    for (size_t i = 1; i < looked.size(); ++i) EXPECT_LE(looked[i] - looked[i - 1], 2 * n / 160 + 1);
  }
}

TEST(Strided, IndicesReachTheRightElement) {
  std::vector<int32_t> memory(12);
  std::iota(memory.begin(), memory.end(), 0);
  Checker checker({});
  checker.values("out", View<int32_t, 2>(memory.data(), {2, 3}, {6, 2}),
                 [](int64_t i, int64_t j) { return 6 * i + 2 * j; });
  EXPECT_TRUE(checker.findings()[0].ok());
  EXPECT_EQ(checker.findings()[0].elements, 6);
}

TEST(Twin, WholeOutputsAreComparedBitForBit) {
  std::vector<float> ours = {1, 2, 3}, theirs = {1, 2, 3.5f};
  Checker::Options options{.twin = [&](const void*) -> const void* { return theirs.data(); }};
  Checker checker(options);
  checker.values("out", View<float, 1>(ours.data(), {3}), [](int64_t) { return 0.0; });
  EXPECT_EQ(checker.findings()[0].wrong, 1);
  EXPECT_EQ(checker.findings()[0].max_error, 0.5);
}

Finding compared(const std::vector<float>& ours, const std::vector<float>& theirs) {
  Checker checker({.twin = [&](const void*) -> const void* { return theirs.data(); }});
  checker.values("out", View<const float, 1>(ours.data(), {std::ssize(ours)}), [](int64_t) { return 0.0; });
  return checker.findings()[0];
}

struct Outputs {
  static constexpr int64_t kSide = 512;
  std::vector<float> theirs      = std::vector<float>(kSide * kSide);
  std::vector<float> ours;
  Outputs() {
    fill_uniform(theirs.data(), std::ssize(theirs), 11, -1, 1);
    ours = theirs;
  }
  // Rounds every value of ours to 8 bits, as another order of summation in bf16 would.
  void round() {
    for (float& x : ours) x = static_cast<float>(bf16(x));
  }
};

TEST(WholeRuns, AWrongTileIsFoundWhereverItLies) {
  for (const bool rounded : {false, true})
    for (const int64_t row : {0, 1, 200, 448})
      for (const int64_t column : {0, 17, 31, 448}) {
        Outputs out;
        if (rounded) out.round();
        for (int64_t i = row; i < row + 64; ++i)
          for (int64_t j = column; j < column + 64; ++j) out.ours[i * Outputs::kSide + j] *= -1;
        const Finding finding = compared(out.ours, out.theirs);
        EXPECT_GE(finding.other_runs, 48) << row << ", " << column;
        EXPECT_LE(finding.first_other, (row + 1) * Outputs::kSide + column);
      }
}

TEST(WholeRuns, AnUnwrittenTileIsFound) {
  Outputs out;
  out.round();
  for (int64_t i = 0; i < 64; ++i) std::fill_n(out.ours.begin() + i * Outputs::kSide + 64, 64, 0.0f);
  EXPECT_GE(compared(out.ours, out.theirs).other_runs, 48);
}

TEST(WholeRuns, RoundingIsNoOtherAnswer) {
  Outputs out;
  out.round();
  EXPECT_EQ(compared(out.ours, out.theirs).other_runs, 0);
  // Rows of tiny values whose error is that of the large ones: sums that cancel.
  std::fill_n(out.theirs.begin(), 4096, 1e-6f);
  for (int64_t i = 0; i < 4096; ++i) out.ours[i] = 1e-6f + (i % 2 ? 1e-3f : -1e-3f);
  EXPECT_EQ(compared(out.ours, out.theirs).other_runs, 0);
  // Equal everywhere, but for residues where the other wrote zero.
  out.ours = out.theirs;
  std::fill_n(out.theirs.begin(), 4096, 0.0f);
  std::fill_n(out.ours.begin(), 4096, 1e-9f);
  EXPECT_EQ(compared(out.ours, out.theirs).other_runs, 0);
  // A value here and there that rounds to the next code.
  out.ours = out.theirs;
  for (size_t i = 0; i < out.ours.size(); i += 5) out.ours[i] += 1;
  EXPECT_EQ(compared(out.ours, out.theirs).other_runs, 0);
}

// Half of the rows in a format of few bits, half equal: no tile is wrong, the variant computes so.
TEST(WholeRuns, HalfOfTheRowsInAnotherPrecisionIsNoWrongTile) {
  Outputs out;
  for (int64_t i = 0; i < Outputs::kSide; ++i)
    for (int64_t j = 0; j < Outputs::kSide && i % 32 < 15; ++j) {
      float& x = out.ours[i * Outputs::kSide + j];
      x        = 3.0f * std::round(x / 3.0f);  // 0 for all of them
    }
  EXPECT_EQ(compared(out.ours, out.theirs).other_runs, 0);
  // One quarter wrong is a tile of a small output.
  out.ours = out.theirs;
  for (int64_t i = 0; i < Outputs::kSide / 4; ++i)
    std::fill_n(out.ours.begin() + i * Outputs::kSide, Outputs::kSide, 0.0f);
  EXPECT_GT(compared(out.ours, out.theirs).other_runs, 0);
}

// Threads find what one thread finds, and each keeps a state of its own.
TEST(Check, ThreadsCompareAsOneDoes) {
  constexpr int64_t kRows = 97, kColumns = 61;
  std::vector<float> out(kRows * kColumns);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i);
  for (const size_t wrong : {size_t{1234}, size_t{5000}}) out[wrong] += 1;
  const View<float, 2> view(out.data(), {kRows, kColumns});
  const auto expected = [row = int64_t{-1}, first = 0.0](int64_t i, int64_t j) mutable {
    if (row != i) row = i, first = static_cast<double>(i * kColumns);
    return Sum{first + static_cast<double>(j), 1, 1};
  };

  Checker one({});
  one.values_in_parallel("out", view, expected);
  ThreadPool pool(4);
  Checker four({.pool = &pool});
  four.values_in_parallel("out", view, expected);
  for (const Checker* checker : {&one, &four}) {
    const Finding& finding = checker->findings().at(0);
    EXPECT_EQ(finding.elements, kRows * kColumns);
    EXPECT_EQ(finding.wrong, 2);
    EXPECT_EQ(finding.max_error, 1);
    EXPECT_EQ(finding.first_wrong, "out(20, 14) is 1235, expected 1234");
    EXPECT_DOUBLE_EQ(finding.rms_value, one.findings().at(0).rms_value);
  }
}

}  // namespace
}  // namespace fathom::lab
