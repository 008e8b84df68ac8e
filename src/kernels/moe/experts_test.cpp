#include "kernels/moe/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "core/expect.h"
#include "core/mxfp4_nvfp4.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"

namespace fathom::kernels {
namespace {

struct alignas(64) Line {
  std::byte bytes[64];
};

enum class Format { mxfp4, bf16 };

// E matrices [out, in], in one of the formats and as numbers.
struct Matrices {
  int64_t E, out, in;
  Format format;
  std::vector<uint8_t> blocks, scales;
  std::vector<bf16> plain;

  Matrices(int64_t E_, int64_t out_, int64_t in_, Format format_, std::mt19937& random)
      : E(E_), out(out_), in(in_), format(format_) {
    // Sums of `in` products of numbers around 1 are then around 4, some beyond the limit of 7.
    const double size = 4 / std::sqrt(static_cast<double>(std::max<int64_t>(in, 1)));
    const auto n      = static_cast<size_t>(E * out * in);
    if (format == Format::bf16) {
      std::normal_distribution<float> normal(0, static_cast<float>(size));
      for (size_t i = 0; i < n; ++i) plain.emplace_back(normal(random));
      return;
    }
    const int scale = 127 + static_cast<int>(std::lround(std::log2(size / 2.9)));
    for (size_t i = 0; i < n / 2; ++i) blocks.push_back(static_cast<uint8_t>(random()));
    for (size_t i = 0; i < n / 32; ++i) scales.push_back(static_cast<uint8_t>(scale - 1 + random() % 3));
  }

  ExpertMatrices view() const {
    if (format == Format::bf16) return View<const bf16, 3>(plain.data(), {E, out, in});
    return Mxfp4Matrices{.blocks = {blocks.data(), {E, out, in / 32, 16}},
                         .scales = {scales.data(), {E, out, in / 32}}};
  }

  std::vector<float> numbers() const {
    std::vector<float> w(static_cast<size_t>(E * out * in));
    if (format == Format::mxfp4) decode_mxfp4(blocks, scales, w);
    for (size_t i = 0; i < plain.size(); ++i) w[i] = static_cast<float>(plain[i]);
    return w;
  }
};

struct Problem {
  int64_t T, H, I, E, top_k;
  std::mt19937 random{7};
  std::vector<float> x, y, weights;
  std::vector<int32_t> experts;
  Matrices mlp1, mlp2;
  std::vector<bf16> bias1, bias2;
  float limit = 7, alpha = 1.702f;

  Problem(int64_t T_, int64_t H_, int64_t I_, int64_t E_, int64_t top_k_, Format format1 = Format::mxfp4,
          Format format2 = Format::mxfp4)
      : T(T_),
        H(H_),
        I(I_),
        E(E_),
        top_k(top_k_),
        mlp1(E, 2 * I, H, format1, random),
        mlp2(E, H, I, format2, random) {
    std::normal_distribution<float> normal;
    const auto fill = [&](auto& numbers, int64_t n) {
      for (int64_t i = 0; i < n; ++i) numbers.emplace_back(normal(random));
    };
    fill(x, T * H);
    fill(y, T * H);
    fill(weights, T * top_k);
    fill(bias1, E * 2 * I);
    fill(bias2, E * H);
    std::vector<int32_t> all(static_cast<size_t>(E));
    for (size_t e = 0; e < all.size(); ++e) all[e] = static_cast<int32_t>(e);
    for (int64_t t = 0; t < T; ++t) {
      std::shuffle(all.begin(), all.end(), random);
      experts.insert(experts.end(), all.begin(), all.begin() + top_k);
    }
  }

  // Computes rows [first, first + rows) of y.
  std::vector<float> run(decltype(&experts_reference) op, int threads, int64_t first, int64_t rows) const {
    std::vector<float> out(y.begin() + first * H, y.begin() + (first + rows) * H);
    const int64_t bytes = experts_cpu_scratch_bytes(rows, top_k, E, H, I, threads);
    const auto scratch  = std::make_unique<Line[]>(static_cast<size_t>((bytes + 63) / 64));
    std::memset(scratch.get(), 0xff,
                static_cast<size_t>(bytes));  // NaN: scratch must be written before it is read
    ThreadPool pool(threads);
    op({x.data() + first * H, {rows, H}}, {experts.data() + first * top_k, {rows, top_k}},
       {weights.data() + first * top_k, {rows, top_k}},
       {.mlp1      = mlp1.view(),
        .mlp1_bias = {bias1.data(), {E, 2 * I}},
        .mlp2      = mlp2.view(),
        .mlp2_bias = {bias2.data(), {E, H}},
        .limit     = limit,
        .alpha     = alpha},
       {out.data(), {rows, H}}, {.threads = &pool, .scratch = {scratch.get()->bytes, {bytes}}});
    return out;
  }
  std::vector<float> run(int threads = 2) const { return run(experts_cpu, threads, 0, T); }
};

// Each sum of K products errs by at most 4 sqrt(K) u sum |products|, and passes on the errors of its terms.
void expect_near_reference(const Problem& p) {
  const std::vector<float> expected = p.run(experts_reference, 1, 0, p.T), got = p.run();
  const std::vector<float> w1 = p.mlp1.numbers(), w2 = p.mlp2.numbers();
  constexpr double kRoundOff = 0x1p-24;
  const auto error           = [&](int64_t depth, double products) {
    return kRoundOff * (4 * std::sqrt(static_cast<double>(depth)) + 4) * products;
  };
  struct Sum {
    double value, error;
  };
  for (int64_t t = 0; t < p.T; ++t) {
    std::vector<double> tolerance(static_cast<size_t>(p.H));
    for (int64_t k = 0; k < p.top_k; ++k) {
      const int64_t e = p.experts[static_cast<size_t>(t * p.top_k + k)];
      if (e == kNoExpert) continue;
      const double much = std::fabs(p.weights[static_cast<size_t>(t * p.top_k + k)]);
      const auto unit   = [&](int64_t n) -> Sum {
        const double bias = static_cast<float>(p.bias1[static_cast<size_t>(e * 2 * p.I + n)]);
        double sum = bias, size = std::fabs(bias);
        for (int64_t h = 0; h < p.H; ++h) {
          const double product = static_cast<double>(w1[static_cast<size_t>((e * 2 * p.I + n) * p.H + h)]) *
                                 p.x[static_cast<size_t>(t * p.H + h)];
          sum += product;
          size += std::fabs(product);
        }
        return {sum, error(p.H, size)};
      };
      std::vector<Sum> a;
      for (int64_t i = 0; i < p.I; ++i) {
        const Sum gate = unit(2 * i), up = unit(2 * i + 1);
        const double g = std::min<double>(gate.value, p.limit);
        const double l = std::clamp<double>(up.value, -p.limit, p.limit) + 1;
        const double s = g / (1 + std::exp(-p.alpha * g));
        // |d(g sigmoid(alpha g)) / dg| <= 1.1; the exponential errs by the rounding of its argument.
        a.push_back({s * l, 1.1 * std::fabs(l) * gate.error + std::fabs(s) * up.error +
                                kRoundOff * (8 + 2 * std::fabs(p.alpha * g)) * std::fabs(s * l)});
      }
      for (int64_t h = 0; h < p.H; ++h) {
        double size = std::fabs(static_cast<float>(p.bias2[static_cast<size_t>(e * p.H + h)])), brought = 0;
        for (int64_t i = 0; i < p.I; ++i) {
          const double w = std::fabs(w2[static_cast<size_t>((e * p.H + h) * p.I + i)]);
          size += w * std::fabs(a[static_cast<size_t>(i)].value);
          brought += w * a[static_cast<size_t>(i)].error;
        }
        tolerance[static_cast<size_t>(h)] +=
            much * (brought + error(p.I, size)) + 4 * kRoundOff * much * size;
      }
    }
    for (int64_t h = 0; h < p.H; ++h) {
      const auto i = static_cast<size_t>(t * p.H + h);
      ASSERT_NEAR(got[i], expected[i],
                  tolerance[static_cast<size_t>(h)] + 4 * kRoundOff * std::fabs(p.y[i]) + 0x1p-140)
          << "token " << t << ", output " << h;
    }
  }
}

TEST(Experts, AgreeWithTheReferenceAtEveryEdge) {
  for_each_simd_target([] {
    // Around blocks (32), steps (64, 128), tiles of outputs (3, 6, 8) and panels (24).
    for (const auto& [H, I] : {std::pair{32, 32}, {64, 96}, {96, 160}, {160, 64}, {416, 288}})
      for (const int64_t T : {1, 2, 7, 25}) {
        SCOPED_TRACE(testing::Message() << "T " << T << ", H " << H << ", I " << I);
        expect_near_reference(Problem(T, H, I, 5, 3));
      }
  });
}

TEST(Experts, InBf16AnyWidthAndMixedFormats) {
  for_each_simd_target([] {
    for (const auto& [H, I] : {std::pair{1, 1}, {2, 3}, {7, 13}, {33, 31}, {65, 97}})
      for (const int64_t T : {1, 6}) {
        SCOPED_TRACE(testing::Message() << "T " << T << ", H " << H << ", I " << I);
        expect_near_reference(Problem(T, H, I, 3, 2, Format::bf16, Format::bf16));
      }
    expect_near_reference(Problem(6, 96, 45, 3, 1, Format::mxfp4, Format::bf16));
    expect_near_reference(Problem(6, 45, 96, 3, 1, Format::bf16, Format::mxfp4));
  });
}

// Gate, linear part and activation from the model's specification, which has twelve digits.
TEST(Experts, ClampGateFromAboveAndUpOnBothSides) {
  struct Case {
    float gate, up;
    double activation;
  };
  for_each_simd_target([] {
    for (const Case& c : {Case{0.5f, -0.25f, 0.2627913274547851}, Case{1, 1, 1.6915915318656425},
                          Case{-3, 0.5f, -0.027106964561678954}, Case{20, 20, 55.99962502642654},
                          Case{-20, -20, 1.976e-13}, Case{7.5f, -9, -41.99971876981991}}) {
      Problem p(1, 2, 1, 1, 1, Format::bf16, Format::bf16);
      p.x          = {c.gate, c.up};
      p.y          = {0, 0};
      p.weights    = {1};
      p.mlp1.plain = {bf16(1), bf16(0), bf16(0), bf16(1)};
      p.mlp2.plain = {bf16(1), bf16(0)};
      p.bias1 = p.bias2 = {bf16(0), bf16(0)};
      EXPECT_NEAR(p.run()[0], c.activation,
                  std::fabs(c.activation) * (c.activation < 1e-12 && c.activation > 0 ? 1e-3 : 2e-6));
    }
  });
}

// The exponential of -alpha gate exceeds every float from a gate of -52.2 on; the activation is then zero.
TEST(Experts, AGateFarBelowZeroIsClosed) {
  for_each_simd_target([] {
    for (const float gate : {-50.0f, -53.0f, -61.0f, -62.0f, -104.0f, -105.0f, -106.0f, -150.0f, -200.0f,
                             -300.0f, -1e3f, -1e4f, -1e5f, -1e10f, -1e30f, -3e38f})
      for (const float up : {-3.0f, 0.0f, 2.0f}) {
        Problem p(1, 2, 1, 1, 1, Format::bf16, Format::bf16);
        p.x          = {gate, up};
        p.y          = {0, 0};
        p.weights    = {1};
        p.mlp1.plain = {bf16(1), bf16(0), bf16(0), bf16(1)};
        p.mlp2.plain = {bf16(1), bf16(0)};
        p.bias1 = p.bias2  = {bf16(0), bf16(0)};
        const double exact = gate / (1 + std::exp(-1.702f * static_cast<double>(gate))) * (up + 1.0);
        // e^88.7 is the largest that fp32 holds: below 2^-120 the activation may be lost.
        const double tolerance = 2e-5 * std::fabs(exact) + 0x1p-120;
        EXPECT_NEAR(p.run(experts_reference, 1, 0, 1)[0], exact, tolerance) << "gate " << gate;
        EXPECT_NEAR(p.run()[0], exact, tolerance) << "gate " << gate;
      }
  });
}

TEST(Experts, AGateThatIsNoNumberIsPassedOn) {
  for_each_simd_target([] {
    Problem p(1, 2, 1, 1, 1, Format::bf16, Format::bf16);
    p.x = {std::nanf(""), 1};
    EXPECT_TRUE(std::isnan(p.run()[0]));
  });
}

TEST(Experts, ATokenKeepsItsBitsWhateverElseIsThere) {
  for_each_simd_target([] {
    for (const Format format : {Format::mxfp4, Format::bf16}) {
      const Problem p(300, 96, 64, 8, 3, format, format);  // 112 rows for each expert
      const auto all = p.run(1);
      for (const int threads : {2, 3, 5}) ASSERT_EQ(all, p.run(threads));
      for (const int64_t rows : {1, 2, 3, 9, 40, 299})
        for (const int64_t first : {int64_t{0}, int64_t{1}, 300 - rows}) {
          const auto some = p.run(experts_cpu, 2, first, rows);
          EXPECT_EQ(std::memcmp(some.data(), all.data() + first * p.H, some.size() * sizeof(float)), 0)
              << rows << " tokens from " << first;
        }
    }
  });
}

TEST(Experts, OneTakesAllAndOthersNothing) {
  for_each_simd_target([] {
    Problem p(53, 64, 64, 6, 1);
    std::fill(p.experts.begin(), p.experts.end(), 4);
    expect_near_reference(p);
  });
}

TEST(Experts, ATokenMayHaveFewerExperts) {
  for_each_simd_target([] {
    for (const Format format : {Format::mxfp4, Format::bf16})
      for (const int64_t T : {1, 7, 25}) {
        Problem p(T, 64, 96, 5, 3, format, format);
        for (size_t i = 0; i < p.experts.size(); ++i)
          if (i % 3 == 1 || i / 3 == 0 || p.experts[i] == 2) p.experts[i] = kNoExpert;
        expect_near_reference(p);
        std::fill(p.experts.begin(), p.experts.end(), kNoExpert);
        EXPECT_EQ(p.run(), p.y);
      }
  });
}

TEST(Experts, EachTakesAll) {
  for_each_simd_target([] { expect_near_reference(Problem(5, 64, 64, 4, 4)); });
}

// 2^-127 is a subnormal float, 1.5 2^127 nearly the largest.
TEST(Experts, ScalesAtBothEndsOfTheirRange) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 6}) {
      Problem p(T, 64, 32, 2, 1);
      for (size_t b = 0; b < p.mlp1.scales.size(); ++b) {
        p.mlp1.scales[b] = b % 2 ? 254 : 0;
        if (b % 2)
          for (size_t i = 0; i < 16; ++i) p.mlp1.blocks[b * 16 + i] &= 0xbb;  // 0 to 1.5
      }
      for (size_t i = 0; i < p.x.size(); ++i) p.x[i] = std::ldexp(p.x[i], i % 64 < 32 ? 124 : -126);
      expect_near_reference(p);

      Problem small(T, 64, 32, 2, 1);  // the smallest scale for W2: sums are subnormal
      std::fill(small.mlp2.scales.begin(), small.mlp2.scales.end(), uint8_t{0});
      std::fill(small.bias2.begin(), small.bias2.end(), bf16(0));
      std::fill(small.y.begin(), small.y.end(), 0.0f);
      const auto y = small.run();
      EXPECT_TRUE(std::any_of(y.begin(), y.end(), [](float number) { return number != 0; }));
      expect_near_reference(small);
    }
  });
}

TEST(Experts, NegativeZerosAreZeros) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 6}) {
      Problem p(T, 64, 32, 2, 2), zero = p;
      std::fill(p.mlp1.blocks.begin(), p.mlp1.blocks.end(), uint8_t{0x88});
      std::fill(zero.mlp1.blocks.begin(), zero.mlp1.blocks.end(), uint8_t{0});
      EXPECT_EQ(p.run(), zero.run());
      expect_near_reference(p);
    }
  });
}

TEST(Experts, AtTheModelsWidth) {
  for_each_simd_target([] {
    const Problem p(20, 2880, 2880, 2, 1);  // more rows for each expert than the GEMV path takes
    const auto all = p.run();
    for (const int64_t t : {0, 19}) {
      const auto one = p.run(experts_cpu, 2, t, 1);
      EXPECT_EQ(std::memcmp(one.data(), all.data() + t * p.H, one.size() * sizeof(float)), 0);
    }
  });
  expect_near_reference(Problem(1, 2880, 2880, 2, 1));
}

TEST(Experts, NoTokensNoWork) {
  for_each_simd_target([] { EXPECT_TRUE(Problem(0, 64, 32, 3, 2).run().empty()); });
}

TEST(Experts, BrokenContractsAreNamed) {
  const Problem p(2, 64, 32, 3, 2);
  const auto broken = [&](auto&& change) {
    Problem copy = p;
    change(copy);
    EXPECT_THROW(copy.run(), ContractError);
  };
  broken([](Problem& q) { q.experts[3] = 3; });
  broken([](Problem& q) { q.experts[0] = -2; });
  broken([](Problem& q) { q.mlp1.out += 2; });
  broken([](Problem& q) { q.mlp1.E -= 1; });
  broken([](Problem& q) { q.mlp2.in += 32; });

  std::vector<float> y(p.y);
  ThreadPool pool(1);
  const int64_t bytes = experts_cpu_scratch_bytes(2, 2, 3, 64, 32, 1) - 64;
  const auto scratch  = std::make_unique<Line[]>(static_cast<size_t>(bytes / 64));
  EXPECT_THROW(
      experts_cpu({p.x.data(), {2, 64}}, {p.experts.data(), {2, 2}}, {p.weights.data(), {2, 2}},
                  {.mlp1      = p.mlp1.view(),
                   .mlp1_bias = {p.bias1.data(), {3, 64}},
                   .mlp2      = p.mlp2.view(),
                   .mlp2_bias = {p.bias2.data(), {3, 64}},
                   .limit     = 7,
                   .alpha     = 1},
                  {y.data(), {2, 64}}, {.threads = &pool, .scratch = {scratch.get()->bytes, {bytes}}}),
      ContractError);
}

}  // namespace
}  // namespace fathom::kernels
