// The product with both sides in int8, against a reference that quantizes in the plainest way.
#include "kernels/gemm/linear_int8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"
#include "kernels/gemm/linear.h"

namespace fathom::kernels {
namespace {

struct alignas(64) ScratchLine {
  std::byte bytes[64];
};

// x [T, K], w [N, K] and bias [N]; the stride of rows of x and w is `gap` elements more than their length.
struct Int8Product {
  int64_t T, N, K, gap;
  std::vector<float> x, before;
  std::vector<int8_t> values;
  std::vector<bf16> scales, bias;

  Int8Product(int64_t T_, int64_t N_, int64_t K_, int64_t gap_ = 0) : T(T_), N(N_), K(K_), gap(gap_) {
    std::mt19937 random(static_cast<uint32_t>(T * 10007 + N * 101 + K));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < T * (K + gap); ++i) x.push_back(normal(random));
    for (int64_t i = 0; i < T * N; ++i) before.push_back(normal(random));
    for (int64_t i = 0; i < N; ++i) bias.emplace_back(normal(random));
    for (int64_t i = 0; i < N * (K + gap); ++i) values.push_back(static_cast<int8_t>(random() % 255 - 127));
    for (int64_t i = 0; i < N * (int8_groups(K) + gap); ++i)
      scales.emplace_back(std::ldexp(1.0f + static_cast<float>(random() % 128) / 128, -8));
  }

  Int8Weights matrix() const {
    const int64_t groups = int8_groups(K);
    return {.values = {values.data(), {N, K}, {K + gap, 1}},
            .scales = {scales.data(), {N, groups}, {groups + gap, 1}}};
  }

  // Computes rows [first, first + rows) of y.
  std::vector<float> multiply(decltype(&linear_int8_reference) op, int threads, bool with_bias, Output output,
                              int64_t first, int64_t rows) const {
    std::vector<float> y(before.begin() + first * N, before.begin() + (first + rows) * N);
    const int64_t bytes = linear_int8_cpu_scratch_bytes(rows, K, threads);
    const auto scratch  = std::make_unique<ScratchLine[]>(static_cast<size_t>((bytes + 63) / 64));
    std::memset(scratch.get(), 0xff,
                static_cast<size_t>(bytes));  // NaN: scratch must be written before it is read
    ThreadPool pool(threads);
    op({x.data() + first * (K + gap), {rows, K}, {K + gap, 1}}, matrix(),
       with_bias ? View<const bf16, 1>(bias.data(), {N}) : View<const bf16, 1>(), output,
       {y.data(), {rows, N}}, {.threads = &pool, .scratch = {scratch.get()->bytes, {bytes}}});
    return y;
  }
  std::vector<float> multiply(int threads = 2, bool with_bias = true,
                              Output output = Output::overwrite) const {
    return multiply(linear_int8_cpu, threads, with_bias, output, 0, T);
  }

  // A group's sum is exact; groups are summed in fp32, with two roundings of each. |x| is at most the largest
  // of its group, |w| at most 127 scales.
  double tolerance(int64_t t, int64_t n) const {
    constexpr double kRoundOff = 0x1p-24;
    double products            = 0;
    for (int64_t k = 0; k < K; ++k)
      products += (std::fabs(x[static_cast<size_t>(t * (K + gap) + k)]) + 0.05) *
                  std::fabs(weight_at(matrix(), n, k));
    const double terms = products + std::fabs(static_cast<float>(bias[static_cast<size_t>(n)])) +
                         std::fabs(before[static_cast<size_t>(t * N + n)]);
    return kRoundOff * (4 * std::sqrt(static_cast<double>(int8_groups(K))) + 8) * terms;
  }

  void expect_near_reference(bool with_bias = true, Output output = Output::overwrite) const {
    const auto y        = multiply(2, with_bias, output);
    const auto expected = multiply(linear_int8_reference, 1, with_bias, output, 0, T);
    ASSERT_EQ(y.size(), expected.size());
    for (int64_t t = 0; t < T; ++t)
      for (int64_t n = 0; n < N; ++n) {
        const auto i = static_cast<size_t>(t * N + n);
        ASSERT_NEAR(y[i], expected[i], tolerance(t, n)) << "row " << t << ", output " << n;
      }
  }
};

TEST(LinearInt8, AgreesWithTheReferenceAtEveryEdge) {
  for_each_simd_target([] {
    // Around GEMV rows (8), tiles (4 x 2), panels (24), row blocks (48), groups (32) and steps (256).
    for (const int64_t T : {1, 2, 3, 7, 8, 9, 13, 47, 48, 49})
      for (const auto& [N, K] :
           {std::pair{1, 1}, {3, 31}, {23, 32}, {24, 33}, {25, 255}, {7, 256}, {5, 257}, {53, 521}}) {
        SCOPED_TRACE(testing::Message() << "T " << T << ", N " << N << ", K " << K);
        Int8Product(T, N, K).expect_near_reference();
      }
  });
}

TEST(LinearInt8, AddsAndGoesWithoutBias) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 11})
      for (const bool bias : {false, true})
        for (const Output output : {Output::overwrite, Output::add})
          Int8Product(T, 29, 100).expect_near_reference(bias, output);
  });
}

TEST(LinearInt8, ARowKeepsItsBitsWhateverElseIsThere) {
  for_each_simd_target([] {
    const Int8Product p(300, 61, 333);
    const auto all = p.multiply(1);
    for (const int threads : {2, 3, 5}) ASSERT_EQ(all, p.multiply(threads));
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 49, 299})
      for (const int64_t first : {int64_t{0}, int64_t{1}, 300 - rows}) {
        const auto some = p.multiply(linear_int8_cpu, 2, true, Output::overwrite, first, rows);
        EXPECT_EQ(std::memcmp(some.data(), all.data() + first * p.N, some.size() * sizeof(float)), 0)
            << rows << " rows from " << first;
      }
  });
}

TEST(LinearInt8, AtTheModelsWidths) {
  for_each_simd_target([] {
    for (const int64_t K : {2880, 4096}) {
      const Int8Product p(10, 26, K);
      p.expect_near_reference();
      const auto y = p.multiply(), one = p.multiply(linear_int8_cpu, 1, true, Output::overwrite, 9, 1);
      EXPECT_EQ(std::memcmp(one.data(), y.data() + 9 * p.N, one.size() * sizeof(float)), 0);
    }
  });
}

TEST(LinearInt8, RowsMayLieApart) {
  for_each_simd_target([] {
    for (const int64_t T : {2, 9}) Int8Product(T, 27, 301, 3).expect_near_reference();
  });
}

// The largest sums, of all signs: exact in integers, so that the result is the product of scales and sum.
TEST(LinearInt8, TheLargestSumsAreExact) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 8, 9})
      for (const int weight : {127, -127, -128})
        for (const int signs : {0, 1, 2}) {
          Int8Product p(T, 3, 512);
          for (size_t i = 0; i < p.x.size(); ++i)
            p.x[i] = signs == 0 || (signs == 2 && i % 2) ? 127.0f : -127.0f;
          std::fill(p.values.begin(), p.values.end(), static_cast<int8_t>(weight));
          std::fill(p.scales.begin(), p.scales.end(), bf16(1.0f));
          const float sum =
              signs == 2 ? 0.0f : (signs == 0 ? 1.0f : -1.0f) * 127 * 512 * static_cast<float>(weight);
          for (const float y : p.multiply(2, false)) ASSERT_EQ(y, sum);
        }
  });
}

TEST(LinearInt8, NothingComesOfNothing) {
  for_each_simd_target([] {
    EXPECT_TRUE(Int8Product(0, 5, 8).multiply().empty());
    EXPECT_TRUE(Int8Product(5, 0, 8).multiply().empty());
    for (const int64_t T : {1, 6, 9}) Int8Product(T, 5, 0).expect_near_reference();  // an empty sum is 0
  });
}

TEST(LinearInt8, ZerosAndNumbersNextToZero) {
  for_each_simd_target([] {
    Int8Product p(9, 26, 96);
    for (size_t i = 0; i < p.x.size(); ++i) {
      const size_t row = i / 96, group = i % 96 / 32;
      if (group == row % 3) p.x[i] = i % 2 ? 0.0f : -0.0f;
      if (group == (row + 1) % 3) p.x[i] = (i % 2 ? -1 : 1) * 0x1p-149f;  // too small for a scale
    }
    p.expect_near_reference();
  });
}

TEST(LinearInt8, WhatIsNoNumberStaysInItsRow) {
  for_each_simd_target([] {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      Int8Product p(12, 26, 70);
      p.x[2 * 70 + 69] = bad;
      const auto y     = p.multiply();
      for (int64_t t = 0; t < p.T; ++t)
        for (int64_t n = 0; n < p.N; ++n)
          EXPECT_EQ(std::isnan(y[static_cast<size_t>(t * p.N + n)]), t == 2) << t << ", " << n;
    }
  });
}

// Int8 is what it says: not fp32, and not far from it.
TEST(LinearInt8, ErrsByWhatSevenBitsLose) {
  for_each_simd_target([] {
    const Int8Product p(20, 64, 320);
    const auto exact = [](View<const float, 2> x, const Int8Weights& w, View<const bf16, 1> bias,
                          Output output, View<float, 2> y,
                          const Execution& on) { linear_reference(x, w, bias, output, y, on); };
    const auto fp32 = p.multiply(+exact, 1, false, Output::overwrite, 0, p.T), in_int8 = p.multiply(2, false);
    double error = 0, size = 0;
    for (size_t i = 0; i < fp32.size(); ++i) {
      error += std::pow(in_int8[i] - fp32[i], 2);
      size += std::pow(fp32[i], 2);
    }
    const double relative = std::sqrt(error / size);
    EXPECT_GT(relative, 1e-3);
    EXPECT_LT(relative, 0.02);
  });
}

TEST(LinearInt8, BrokenContractsAreNamed) {
  const std::vector<float> x(66);
  const std::vector<int8_t> values(3 * 33);
  const std::vector<bf16> scales(6);
  std::vector<float> y(6);
  ThreadPool pool(1);
  alignas(64) std::byte scratch[64];
  const Execution on{.threads = &pool, .scratch = {scratch, {64}}};
  const auto multiply = [&](View<const float, 2> x_, int64_t groups, View<const bf16, 1> bias,
                            View<float, 2> y_) {
    linear_int8_cpu(x_, {.values = {values.data(), {3, 33}}, .scales = {scales.data(), {3, groups}}}, bias,
                    Output::overwrite, y_, on);
  };
  EXPECT_THROW(multiply({x.data(), {2, 32}}, 2, {}, {y.data(), {2, 3}}), ContractError);
  EXPECT_THROW(multiply({x.data(), {2, 33}}, 1, {}, {y.data(), {2, 3}}), ContractError);
  EXPECT_THROW(multiply({x.data(), {2, 33}}, 2, {scales.data(), {2}}, {y.data(), {2, 3}}), ContractError);
  EXPECT_THROW(multiply({x.data(), {2, 33}}, 2, {}, {y.data(), {1, 3}}), ContractError);
  EXPECT_THROW(multiply({x.data(), {2, 33}, {1, 2}}, 2, {}, {y.data(), {2, 3}}), ContractError);
  EXPECT_THROW(multiply({x.data(), {2, 33}}, 2, {}, {y.data(), {2, 3}}),
               ContractError);  // 64 bytes of scratch
}

}  // namespace
}  // namespace fathom::kernels
