#include "kernels/gemm/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/expect.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"

namespace fathom::kernels {
namespace {

struct alignas(64) Line {
  std::byte bytes[64];
};

enum class Format { bf16, int8 };
constexpr Format kFormats[] = {Format::bf16, Format::int8};

// x [T, K], w [N, K] and bias [N]; the stride of rows of x and w is `gap` elements more than their length.
struct Problem {
  int64_t T, N, K, gap;
  std::vector<float> x, before;
  Format format;
  std::vector<bf16> w, bias;
  std::vector<int8_t> values;  // of int8
  std::vector<bf16> scales;

  Problem(int64_t T_, int64_t N_, int64_t K_, int64_t gap_ = 0, Format format_ = Format::bf16)
      : T(T_), N(N_), K(K_), gap(gap_), format(format_) {
    std::mt19937 random(static_cast<uint32_t>(T * 10007 + N * 101 + K));
    std::normal_distribution<float> normal;
    const auto fill = [&](auto& numbers, int64_t n) {
      numbers.resize(static_cast<size_t>(n));
      for (auto& number : numbers) number = static_cast<std::decay_t<decltype(number)>>(normal(random));
    };
    fill(x, T * (K + gap));
    fill(w, N * (K + gap));
    fill(bias, N);
    fill(before, T * N);
    if (format == Format::bf16) return;
    for (int64_t i = 0; i < N * (K + gap); ++i) values.push_back(static_cast<int8_t>(random() % 255 - 127));
    for (int64_t i = 0; i < N * (int8_groups(K) + gap); ++i)
      scales.emplace_back(std::ldexp(1.0f + static_cast<float>(random() % 128) / 128, -8));
  }

  DenseMatrix matrix() const {
    if (format == Format::bf16) return View<const bf16, 2>(w.data(), {N, K}, {K + gap, 1});
    const int64_t groups = int8_groups(K);
    return Int8Weights{.values = {values.data(), {N, K}, {K + gap, 1}},
                       .scales = {scales.data(), {N, groups}, {groups + gap, 1}}};
  }

  // Computes rows [first, first + rows) of y.
  std::vector<float> multiply(decltype(&linear_reference) op, int threads, bool with_bias, Output output,
                              int64_t first, int64_t rows) const {
    std::vector<float> y(before.begin() + first * N, before.begin() + (first + rows) * N);
    const int64_t bytes = linear_cpu_scratch_bytes(rows, K, threads);
    const auto scratch  = std::make_unique<Line[]>(static_cast<size_t>((bytes + 63) / 64));
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
    return multiply(linear_cpu, threads, with_bias, output, 0, T);
  }

  // 4 sqrt(K) u sum |x w| for the products, and an ulp for each sum of few terms around them.
  double tolerance(int64_t t, int64_t n) const {
    constexpr double kRoundOff = 0x1p-24;
    const DenseMatrix weights  = matrix();
    double products            = 0;
    for (int64_t k = 0; k < K; ++k)
      products += std::fabs(static_cast<double>(x[static_cast<size_t>(t * (K + gap) + k)]) *
                            std::visit([&](const auto& m) { return weight_at(m, n, k); }, weights));
    const double terms = products + std::fabs(static_cast<float>(bias[static_cast<size_t>(n)])) +
                         std::fabs(before[static_cast<size_t>(t * N + n)]);
    return kRoundOff * (4 * std::sqrt(static_cast<double>(K)) * products + 4 * terms);
  }
};

void expect_near(const Problem& p, const std::vector<float>& y, const std::vector<float>& expected) {
  ASSERT_EQ(y.size(), expected.size());
  for (int64_t t = 0; t < p.T; ++t)
    for (int64_t n = 0; n < p.N; ++n) {
      const auto i = static_cast<size_t>(t * p.N + n);
      ASSERT_NEAR(y[i], expected[i], p.tolerance(t, n)) << "row " << t << ", output " << n;
    }
}

bool same_bits(const float* a, const float* b, int64_t n) {
  return std::memcmp(a, b, static_cast<size_t>(n) * sizeof(float)) == 0;
}

TEST(Linear, AgreesWithTheReferenceAtEveryEdge) {
  for_each_simd_target([] {
    // Around the sizes of vectors (8, 16), tiles (3, 4, 6, 8), GEMV rows (4), panels (24) and row blocks
    // (48).
    for (const int64_t T : {1, 2, 3, 4, 5, 7, 8, 9, 47, 48, 49, 53})
      for (const auto& [N, K] :
           {std::pair{1, 1}, {3, 7}, {7, 31}, {8, 32}, {23, 33}, {24, 64}, {25, 97}, {53, 129}}) {
        for (const Format format : kFormats) {
          SCOPED_TRACE(testing::Message()
                       << "T " << T << ", N " << N << ", K " << K << ", format " << static_cast<int>(format));
          const Problem p(T, N, K, 0, format);
          expect_near(p, p.multiply(), p.multiply(linear_reference, 1, true, Output::overwrite, 0, T));
        }
      }
  });
}

TEST(Linear, AddsAndGoesWithoutBias) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 6})
      for (const bool bias : {false, true})
        for (const Output output : {Output::overwrite, Output::add}) {
          const Problem p(T, 29, 100);
          expect_near(p, p.multiply(2, bias, output), p.multiply(linear_reference, 1, bias, output, 0, T));
        }
  });
}

TEST(Linear, ARowKeepsItsBitsWhateverElseIsThere) {
  for_each_simd_target([] {
    for (const Format format : kFormats) {
      const Problem p(512, 61, 333, 0, format);
      const auto all = p.multiply(1);
      for (const int threads : {2, 3, 5}) ASSERT_EQ(all, p.multiply(threads));
      for (const int64_t rows : {1, 2, 3, 4, 5, 8, 9, 49, 511})
        for (const int64_t first : {int64_t{0}, int64_t{1}, 512 - rows}) {
          if (first + rows > p.T) continue;
          const auto some = p.multiply(linear_cpu, 2, true, Output::overwrite, first, rows);
          EXPECT_TRUE(same_bits(some.data(), all.data() + first * p.N, rows * p.N))
              << rows << " rows from " << first;
        }
    }
  });
}

// model/unembedding_screen.h computes some outputs alone.
TEST(Linear, AnOutputKeepsItsBitsWithoutTheOthers) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 2, 5, 8}) {
      const Problem p(T, 61, 333);
      const auto all = p.multiply();
      for (const int64_t count : {1, 2, 3, 4, 5, 23, 24, 25, 60})
        for (const int64_t first : {int64_t{0}, int64_t{1}, p.N - count}) {
          Problem some = p;
          some.N       = count;
          some.w.assign(p.w.begin() + first * p.K, p.w.begin() + (first + count) * p.K);
          some.bias.assign(p.bias.begin() + first, p.bias.begin() + first + count);
          for (int64_t t = 0; t < T; ++t) {  // each row alone
            const auto y = some.multiply(linear_cpu, 2, true, Output::overwrite, t, 1);
            EXPECT_TRUE(same_bits(y.data(), all.data() + t * p.N + first, count))
                << count << " outputs from " << first << ", row " << t << " of " << T;
          }
        }
    }
  });
}

TEST(Linear, DeepRowsPassInPieces) {
  for_each_simd_target([] {
    // Around the pieces of a row that stay in L1 (1024), and the model's width.
    for (const int64_t K : {1023, 1024, 1025, 2049, 2880}) {
      for (const Format format : kFormats) {
        const Problem p(18, 26, K, 0, format);
        const auto y = p.multiply();
        expect_near(p, y, p.multiply(linear_reference, 1, true, Output::overwrite, 0, p.T));
        const auto one = p.multiply(linear_cpu, 1, true, Output::overwrite, 17, 1);
        EXPECT_TRUE(same_bits(one.data(), y.data() + 17 * p.N, p.N));
      }
    }
  });
}

TEST(Linear, RowsMayLieApart) {
  for_each_simd_target([] {
    for (const int64_t T : {2, 9})
      for (const Format format : kFormats) {
        const Problem p(T, 27, 45, 3, format);
        expect_near(p, p.multiply(), p.multiply(linear_reference, 1, true, Output::overwrite, 0, T));
      }
  });
}

TEST(Linear, NothingComesOfNothing) {
  for_each_simd_target([] {
    for (const Format format : kFormats) {
      EXPECT_TRUE(Problem(0, 5, 8, 0, format).multiply().empty());
      EXPECT_TRUE(Problem(5, 0, 8, 0, format).multiply().empty());
      for (const int64_t T : {1, 6, 9}) {  // an empty sum is 0
        const Problem p(T, 5, 0, 0, format);
        EXPECT_EQ(p.multiply(), p.multiply(linear_reference, 1, true, Output::overwrite, 0, T));
      }
    }
  });
}

TEST(Linear, ANanStaysInItsRow) {
  for_each_simd_target([] {
    Problem p(6, 26, 70);
    p.x[2 * 70 + 69] = std::numeric_limits<float>::quiet_NaN();
    const auto y     = p.multiply();
    for (int64_t t = 0; t < p.T; ++t)
      for (int64_t n = 0; n < p.N; ++n)
        EXPECT_EQ(std::isnan(y[static_cast<size_t>(t * p.N + n)]), t == 2) << t << ", " << n;
  });
}

TEST(Linear, BrokenContractsAreNamed) {
  const std::vector<float> x(6);
  const std::vector<bf16> w(9);
  std::vector<float> y(6);
  ThreadPool pool(1);
  alignas(64) std::byte scratch[64];
  const Execution on{.threads = &pool, .scratch = {scratch, {64}}};
  const auto multiply = [&](View<const float, 2> x_, View<const bf16, 1> bias, View<float, 2> y_) {
    linear_cpu(x_, View<const bf16, 2>(w.data(), {3, 3}), bias, Output::overwrite, y_, on);
  };
  EXPECT_THROW(multiply({x.data(), {3, 2}}, {}, {y.data(), {3, 2}}), ContractError);
  EXPECT_THROW(multiply({x.data(), {2, 3}}, {}, {y.data(), {3, 2}}), ContractError);
  EXPECT_THROW(multiply({x.data(), {2, 3}, {1, 2}}, {}, {y.data(), {2, 3}}), ContractError);
  EXPECT_THROW(multiply({x.data(), {2, 3}}, {w.data(), {2}}, {y.data(), {2, 3}}), ContractError);
  EXPECT_THROW(multiply({x.data(), {2, 3}}, {}, {y.data(), {2, 3}}), ContractError);  // 64 bytes of scratch

  const std::vector<int8_t> values(3 * 33);
  const std::vector<float> wide(33);
  EXPECT_THROW(linear_cpu({wide.data(), {1, 33}},
                          Int8Weights{.values = {values.data(), {3, 33}}, .scales = {w.data(), {3, 1}}}, {},
                          Output::overwrite, {y.data(), {1, 3}}, on),
               ContractError);  // 33 columns have two groups
}

}  // namespace
}  // namespace fathom::kernels
