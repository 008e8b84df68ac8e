#include "kernels/sampling/screened_argmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "core/expect.h"
#include "cuda/device.h"
#include "kernels/gemm/linear_gpu.h"
#include "kernels/gemm/pack_weights.h"
#include "kernels/guarded_device_buffer.h"
#include "kernels/sampling/sample.h"

namespace fathom::kernels {
namespace {

constexpr float kInfinity    = std::numeric_limits<float>::infinity(),
                kNan         = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kUntouched = -7;

size_t at(int64_t i) { return static_cast<size_t>(i); }

std::vector<bf16> normal(int64_t n, std::mt19937& random, float deviation) {
  std::normal_distribution<float> of(0, deviation);
  std::vector<bf16> values;
  for (int64_t i = 0; i < n; ++i) values.emplace_back(of(random));
  return values;
}

class ScreenedArgmax : public testing::Test {
 protected:
  void SetUp() override {
    device = find_device({0});
    if (!device) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }

  // The ids of x [T, K] and w [V, K], by screening and by linear_gemv and sample_tokens; several calls with
  // the same state. `places` are the rules'.
  // For greedy rows, and for drawn ones but for one.
  void expect_the_same(const std::vector<bf16>& w, int64_t V, int64_t K, const std::vector<bf16>& x,
                       int64_t T, const std::vector<int32_t>& places) {
    const int64_t rows = padded(V);
    const GuardedDeviceBuffer given(w);
    const GuardedDeviceBuffer<bf16> tiles(rows * K);
    pack_matrix(View<const bf16, 2>(given.data(), {V, K}), RowOrder::plain, 0, 0, tiles.data(),
                device->stream());
    const PackedMatrix packed{.tiles = tiles.data(), .bias = nullptr, .rows = rows, .depth = K};
    const GuardedDeviceBuffer<uint8_t> copy(rows * K);
    const GuardedDeviceBuffer<float> scales(rows), errors(rows), upper(T * V), logits(T * V);
    pack_screening_weights(packed, copy.data(), scales.data(), errors.data(), device->stream());
    const ScreeningWeights screening{
        .tiles = copy.data(), .scales = scales.data(), .errors = errors.data(), .rows = rows, .depth = K};
    const GuardedDeviceBuffer state(std::vector<ScreenedArgmaxState>(1));

    const GuardedDeviceBuffer on_x(x);
    const View<const bf16, 2> x_view(on_x.data(), {T, K});
    for (const float temperature : {0.0f, 0.02f, 1.0f, 300.0f}) {
      SCOPED_TRACE(temperature);
      std::vector<SamplingRow> rules;
      for (const int32_t place : places)
        rules.push_back({.temperature = rules.size() == 2 ? 0 : temperature,
                         .seed        = 5 + uint64_t{rules.size()} * 0x700000001,
                         .position    = 1 + static_cast<int64_t>(rules.size()) * 3,
                         .place       = place});
      const GuardedDeviceBuffer on_rules(rules);
      const GuardedDeviceBuffer expected(std::vector<int32_t>(at(T), kUntouched));
      linear_gemv(x_view, packed, logits.view({T, V}), device->stream());
      sample_tokens(View<const float, 2>(logits.data(), {T, V}), on_rules.view<1>({T}), expected.view<1>({T}),
                    device->stream());
      const std::vector<int32_t> want = expected.read();
      for (int call = 0; call < 3; ++call) {
        const GuardedDeviceBuffer got(std::vector<int32_t>(at(T), kUntouched));
        screened_argmax(x_view, packed, screening, on_rules.view<1>({T}), upper.view({T, V}), state.data(),
                        got.view<1>({T}), device->stream());
        EXPECT_EQ(got.read(), want) << "call " << call;
      }
      const ScreenedArgmaxState after = state.read()[0];
      EXPECT_EQ(after.ctas_done, 0u);
      for (int t = 0; t < kMaxGemvRows; ++t) {
        EXPECT_EQ(after.best[t], 0u);
        EXPECT_EQ(after.least[t], 0u);
      }
    }
  }
  void expect_the_same(const std::vector<bf16>& w, int64_t V, int64_t K, const std::vector<bf16>& x,
                       int64_t T) {
    std::vector<int32_t> places;
    for (int64_t t = 0; t < T; ++t) places.push_back(static_cast<int32_t>(T - 1 - t));
    expect_the_same(w, V, K, x, T, places);
  }

  Device* device = nullptr;
  std::mt19937 random{3};
};

TEST_F(ScreenedArgmax, IsThatOfTheProduct) {
  for (const auto& [V, K] :
       {std::pair<int64_t, int64_t>{32768, 64}, {32772, 128}, {33000, 2880}, {32768 + 64, 576}}) {
    const std::vector<bf16> w = normal(V * K, random, 0.02f);
    for (const int64_t T : {1, 2, 3, 5, 8}) {
      SCOPED_TRACE(testing::Message() << V << " x " << K << ", T " << T);
      expect_the_same(w, V, K, normal(T * K, random, 1), T);
    }
  }
}

TEST_F(ScreenedArgmax, WhereTheLargestAreCloserThanTheCopyIsExact) {
  constexpr int64_t kV = 32768, kK = 256, kT = 8;
  const std::vector<bf16> x = normal(kT * kK, random, 1);
  std::vector<bf16> w       = normal(kV * kK, random, 0.02f);
  // 300 rows along each x, whose numbers differ in their last bits, and some of them not at all.
  for (int64_t i = 0; i < 300 * kT; ++i) {
    const int64_t v = (i * 7919 + 13) % kV, t = i % kT;
    for (int64_t k = 0; k < kK; ++k) {
      bf16 number(0.1f * static_cast<float>(x[at(t * kK + k)]));
      if (i % 5 != 0 && (i + k) % 17 == 0) number.bits ^= 1;
      w[at(v * kK + k)] = number;
    }
  }
  expect_the_same(w, kV, kK, x, kT);
}

TEST_F(ScreenedArgmax, OfRowsOfAnySize) {
  constexpr int64_t kV = 32768, kK = 192, kT = 8;
  std::vector<bf16> w = normal(kV * kK, random, 1);
  for (int64_t v = 0; v < kV; ++v) {  // rows from 2^-40 to 2^39, a hundred of them zero, some with an outlier
    const float size = std::ldexp(1.0f, static_cast<int>(v % 80) - 40);
    for (int64_t k = 0; k < kK; ++k) {
      bf16& number = w[at(v * kK + k)];
      number =
          bf16(v % 331 == 5 ? 0.0f : static_cast<float>(number) * size * (v % 7 == 3 && k == 9 ? 1000 : 1));
    }
  }
  std::vector<bf16> x = normal(kT * kK, random, 1);
  for (int64_t t = 0; t < kT; ++t)  // zero; too small and too large for the squares; and between
    for (int64_t k = 0; k < kK; ++k) {
      constexpr float kSizes[] = {1, 0, 0x1p-80f, 0x1p70f, 0x1p-30f, 0x1p40f, 0x1p-49f, 1000};
      x[at(t * kK + k)]        = bf16(static_cast<float>(x[at(t * kK + k)]) * kSizes[t]);
    }
  expect_the_same(w, kV, kK, x, kT);
}

TEST_F(ScreenedArgmax, WhatIsNotANumber) {
  constexpr int64_t kV = 32768, kK = 64, kT = 4;
  const std::vector<bf16> w = normal(kV * kK, random, 1), x = normal(kT * kK, random, 1);
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    std::vector<bf16> in_w = w, in_x = x;
    in_w[at(20001 * kK + 5)] = bf16(bad);
    in_x[at(2 * kK + 7)]     = bf16(bad);
    expect_the_same(in_w, kV, kK, x, kT);
    expect_the_same(w, kV, kK, in_x, kT);
  }
}

TEST_F(ScreenedArgmax, RowsWithoutAPlaceAreLeftOut) {
  constexpr int64_t kV = 32768, kK = 64, kT = 6;
  std::vector<bf16> x = normal(kT * kK, random, 1);
  for (int64_t k = 0; k < kK; ++k) x[at(4 * kK + k)] = bf16(0.0f);
  expect_the_same(normal(kV * kK, random, 1), kV, kK, x, kT, {3, -1, 0, 5, -1, -1});
  expect_the_same(normal(kV * kK, random, 1), kV, kK, x, kT, {-1, -1, -1, -1, -1, -1});
}

TEST_F(ScreenedArgmax, BrokenContractsAreRefused) {
  const PackedMatrix few{.tiles = nullptr, .bias = nullptr, .rows = 64, .depth = 64};
  const ScreeningWeights screening{.rows = 64, .depth = 64};
  EXPECT_THROW(screened_argmax(View<const bf16, 2>(nullptr, {1, 64}), few, screening,
                               View<const SamplingRow, 1>(nullptr, {1}), View<float, 2>(nullptr, {1, 64}),
                               nullptr, View<int32_t, 1>(nullptr, {1}), device->stream()),
               ContractError);
}

}  // namespace
}  // namespace fathom::kernels
