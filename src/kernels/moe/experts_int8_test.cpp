// The experts with activations in int8, against a reference that quantizes in the plainest way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "core/mxfp4_nvfp4.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"
#include "kernels/moe/experts.h"
#include "kernels/moe/experts_int8.h"

namespace fathom::kernels {
namespace {

struct alignas(64) CacheLine {
  std::byte bytes[64];
};

// E matrices [out, in] in MXFP4.
struct PackedMatrices {
  int64_t E, out, in;
  std::vector<uint8_t> blocks, scales;

  PackedMatrices(int64_t E_, int64_t out_, int64_t in_, std::mt19937& random) : E(E_), out(out_), in(in_) {
    // Sums of `in` products with numbers around 1 are then around 4, some beyond the limit of 7.
    const double size = 4 / std::sqrt(static_cast<double>(in));
    const int scale   = 127 + static_cast<int>(std::lround(std::log2(size / 2.9)));
    for (int64_t i = 0; i < E * out * in / 2; ++i) blocks.push_back(static_cast<uint8_t>(random()));
    for (int64_t i = 0; i < E * out * in / 32; ++i)
      scales.push_back(static_cast<uint8_t>(scale - 1 + random() % 3));
  }

  Mxfp4Matrices view() const {
    return {.blocks = {blocks.data(), {E, out, in / 32, 16}}, .scales = {scales.data(), {E, out, in / 32}}};
  }
  std::vector<float> numbers() const {
    std::vector<float> w(blocks.size() * 2);
    decode_mxfp4(blocks, scales, w);
    return w;
  }
};

using ExpertsOp = decltype(&experts_int8_reference);

struct Int8Problem {
  int64_t T, H, I, E, top_k;
  std::mt19937 random{11};
  std::vector<float> x, y, weights;
  std::vector<int32_t> experts;
  PackedMatrices mlp1, mlp2;
  std::vector<bf16> bias1, bias2;
  float limit = 7, alpha = 1.702f;

  Int8Problem(int64_t T_, int64_t H_, int64_t I_, int64_t E_, int64_t top_k_)
      : T(T_), H(H_), I(I_), E(E_), top_k(top_k_), mlp1(E, 2 * I, H, random), mlp2(E, H, I, random) {
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

  // Rows [first, first + rows) of y.
  std::vector<float> run(ExpertsOp op, int threads, int64_t first, int64_t rows) const {
    std::vector<float> out(y.begin() + first * H, y.begin() + (first + rows) * H);
    const int64_t bytes = std::max(experts_int8_cpu_scratch_bytes(rows, top_k, E, H, I, threads),
                                   experts_cpu_scratch_bytes(rows, top_k, E, H, I, threads));
    const auto scratch  = std::make_unique<CacheLine[]>(static_cast<size_t>((bytes + 63) / 64));
    std::memset(scratch.get(), 0xff, static_cast<size_t>(bytes));  // NaN: must be written before it is read
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
  std::vector<float> run(int threads = 2) const { return run(experts_int8_cpu, threads, 0, T); }
};

constexpr double kRoundOff = 0x1p-24;

// Sums of `blocks` terms in fp32, each of two roundings more, and a bias.
double error_of_sum(int64_t blocks, double size) {
  return kRoundOff * (4 * std::sqrt(static_cast<double>(blocks)) + 8) * size;
}

// Everything that follows from the format is exact in the reference; the op differs by fp32 sums of blocks.
// An activation that is nearer to the middle of two codes than its error may take the other one: its output
// may then be off by a whole step of its block.
void expect_near_int8_reference(const Int8Problem& p) {
  const std::vector<float> expected = p.run(experts_int8_reference, 1, 0, p.T), got = p.run();
  const std::vector<float> w1 = p.mlp1.numbers(), w2 = p.mlp2.numbers();
  for (int64_t t = 0; t < p.T; ++t) {
    std::vector<float> x(static_cast<size_t>(p.H));  // as int8 holds it
    for (int64_t b = 0; b < p.H; b += 32) {
      float largest = 0;
      for (int64_t h = b; h < b + 32; ++h)
        largest = std::max(largest, std::fabs(p.x[static_cast<size_t>(t * p.H + h)]));
      const float scale = largest / 127;
      for (int64_t h = b; h < b + 32 && scale > 0; ++h)
        x[static_cast<size_t>(h)] = scale * std::nearbyint(p.x[static_cast<size_t>(t * p.H + h)] / scale);
    }
    std::vector<double> tolerance(static_cast<size_t>(p.H));
    for (int64_t k = 0; k < p.top_k; ++k) {
      const int64_t e = p.experts[static_cast<size_t>(t * p.top_k + k)];
      if (e == kNoExpert) continue;
      const double much = std::fabs(p.weights[static_cast<size_t>(t * p.top_k + k)]);
      struct Sum {
        double value, error;
      };
      const auto unit = [&](int64_t n) -> Sum {
        const double bias = static_cast<float>(p.bias1[static_cast<size_t>(e * 2 * p.I + n)]);
        double sum = bias, size = std::fabs(bias);
        for (int64_t h = 0; h < p.H; ++h) {
          const double product = static_cast<double>(w1[static_cast<size_t>((e * 2 * p.I + n) * p.H + h)]) *
                                 x[static_cast<size_t>(h)];
          sum += product;
          size += std::fabs(product);
        }
        return {sum, error_of_sum(p.H / 32, size)};
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
      // What quantization may make of the errors.
      for (size_t b = 0; b < a.size(); b += 32) {
        double largest = 0, off = 0;
        for (size_t i = b; i < b + 32; ++i)
          if (std::fabs(a[i].value) > largest) largest = std::fabs(a[i].value), off = a[i].error;
        if (largest == 0) continue;
        const double scale = largest / 127;
        for (size_t i = b; i < b + 32; ++i) {
          const double code = a[i].value / scale, from_middle = std::fabs(code - std::floor(code) - 0.5);
          // The largest sets the scale, which moves all codes.
          const double error = a[i].error / scale + std::fabs(code) * (off / largest + 4 * kRoundOff);
          a[i]               = {a[i].value, scale * (error + (from_middle <= error ? 1 : 0))};
        }
      }
      for (int64_t h = 0; h < p.H; ++h) {
        double size = std::fabs(static_cast<float>(p.bias2[static_cast<size_t>(e * p.H + h)])), brought = 0;
        for (int64_t i = 0; i < p.I; ++i) {
          const double w = std::fabs(w2[static_cast<size_t>((e * p.H + h) * p.I + i)]);
          size += w * std::fabs(a[static_cast<size_t>(i)].value);
          brought += w * a[static_cast<size_t>(i)].error;
        }
        tolerance[static_cast<size_t>(h)] +=
            much * (brought + error_of_sum(p.I / 32, size)) + 4 * kRoundOff * much * size;
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

TEST(ExpertsInt8, AgreeWithTheReferenceAtEveryEdge) {
  for_each_simd_target([] {
    // Around blocks (32), steps (8 and 16 blocks) and panels of outputs (24). A width is whole blocks: a
    // prime number of them, or one more or fewer than a step.
    for (const auto& [H, I] : {std::pair{32, 32}, {64, 96}, {224, 160}, {256, 288}, {416, 352}, {544, 480}})
      for (const int64_t T : {1, 2, 7, 8, 9}) {
        SCOPED_TRACE(testing::Message() << "T " << T << ", H " << H << ", I " << I);
        expect_near_int8_reference(Int8Problem(T, H, I, 3, 2));
      }
  });
}

// All rows go to both experts: fewer rows than a GEMV takes, as many, and more than a block of rows.
TEST(ExpertsInt8, AgreeWithTheReferenceAtEveryNumberOfRows) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 127, 128, 129}) {
      SCOPED_TRACE(testing::Message() << "T " << T);
      expect_near_int8_reference(Int8Problem(T, 96, 64, 2, 2));
    }
  });
}

TEST(ExpertsInt8, ATokenMayHaveFewerExperts) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 7, 25}) {
      Int8Problem p(T, 64, 96, 5, 3);
      for (size_t i = 0; i < p.experts.size(); ++i)
        if (i % 3 == 1 || i / 3 == 0 || p.experts[i] == 2) p.experts[i] = kNoExpert;
      expect_near_int8_reference(p);
      std::fill(p.experts.begin(), p.experts.end(), kNoExpert);
      EXPECT_EQ(p.run(), p.y);
    }
  });
}

TEST(ExpertsInt8, NoTokensNoWork) {
  for_each_simd_target([] { EXPECT_TRUE(Int8Problem(0, 64, 32, 3, 2).run().empty()); });
}

// Every value 127 or -127 and every weight 6 or -6: the largest sums in 16 bits, with and without the offset.
TEST(ExpertsInt8, TheLargestSumsAreExact) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 8, 9})
      for (const uint8_t code : {uint8_t{0x77}, uint8_t{0xff}, uint8_t{0x7f}, uint8_t{0xf7}})
        for (const int signs : {0, 1, 2}) {
          Int8Problem p(T, 512, 32, 1, 1);
          for (size_t i = 0; i < p.x.size(); ++i)
            p.x[i] = signs == 0 ? 127.0f : signs == 1 ? -127.0f : i % 2 == 0 ? 127.0f : -127.0f;
          std::fill(p.mlp1.blocks.begin(), p.mlp1.blocks.end(), code);
          std::fill(p.mlp1.scales.begin(), p.mlp1.scales.end(), uint8_t{127 - 16});
          std::fill(p.bias1.begin(), p.bias1.end(), bf16(0));
          expect_near_int8_reference(p);
        }
  });
}

TEST(ExpertsInt8, ATokenKeepsItsBitsWhateverElseIsThere) {
  for_each_simd_target([] {
    const Int8Problem p(300, 288, 64, 8, 3);  // 112 rows for each expert
    const auto all = p.run(1);
    for (const int threads : {2, 3, 5}) ASSERT_EQ(all, p.run(threads));
    for (const int64_t rows : {1, 2, 3, 9, 40, 299})
      for (const int64_t first : {int64_t{0}, int64_t{1}, 300 - rows}) {
        const auto some = p.run(experts_int8_cpu, 2, first, rows);
        EXPECT_EQ(std::memcmp(some.data(), all.data() + first * p.H, some.size() * sizeof(float)), 0)
            << rows << " tokens from " << first;
      }
  });
}

// Int8 is what it says: not fp32, and not far from it.
TEST(ExpertsInt8, ErrsByWhatSevenBitsLose) {
  for_each_simd_target([] {
    const Int8Problem p(20, 288, 320, 4, 2);
    const auto fp32 = p.run(experts_reference, 1, 0, p.T), int8 = p.run();
    double error = 0, size = 0;
    for (size_t i = 0; i < fp32.size(); ++i) {
      error += std::pow(int8[i] - fp32[i], 2);
      size += std::pow(fp32[i] - p.y[i], 2);
    }
    const double relative = std::sqrt(error / size);
    EXPECT_GT(relative, 1e-3);
    EXPECT_LT(relative, 0.02);
  });
}

// 2^-127 is a subnormal float, 1.5 2^127 nearly the largest.
TEST(ExpertsInt8, ScalesAtBothEndsOfTheirRange) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 9}) {
      Int8Problem p(T, 64, 32, 2, 1);
      for (size_t b = 0; b < p.mlp1.scales.size(); ++b) {
        p.mlp1.scales[b] = b % 2 ? 254 : 0;
        if (b % 2)
          for (size_t i = 0; i < 16; ++i) p.mlp1.blocks[b * 16 + i] &= 0xbb;  // 0 to 1.5
      }
      for (size_t i = 0; i < p.x.size(); ++i) p.x[i] = std::ldexp(p.x[i], i % 64 < 32 ? 124 : -126);
      expect_near_int8_reference(p);
    }
  });
}

TEST(ExpertsInt8, ZerosAndNumbersNextToZero) {
  for_each_simd_target([] {
    Int8Problem p(9, 96, 32, 2, 1);
    for (size_t i = 0; i < p.x.size(); ++i) {
      const size_t token = i / 96, block = i % 96 / 32;
      if (block == token % 3) p.x[i] = 0;
      if (block == (token + 1) % 3) p.x[i] = (i % 2 ? -1 : 1) * 0x1p-149f;  // too small for a scale
    }
    expect_near_int8_reference(p);
    std::fill(p.x.begin(), p.x.end(), -0.0f);
    expect_near_int8_reference(p);
  });
}

TEST(ExpertsInt8, ATokenThatIsNoNumberSpoilsItselfAlone) {
  for_each_simd_target([] {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      Int8Problem p(12, 96, 64, 1, 1);
      const auto before                     = p.run();
      p.x[static_cast<size_t>(5 * p.H + 7)] = bad;
      const auto after                      = p.run();
      for (size_t i = 0; i < after.size(); ++i)
        if (i / 96 == 5)
          EXPECT_TRUE(std::isnan(after[i]));
        else
          EXPECT_EQ(after[i], before[i]);
    }
  });
}

TEST(ExpertsInt8, NegativeZerosAreZeros) {
  for_each_simd_target([] {
    for (const int64_t T : {1, 9}) {
      Int8Problem p(T, 64, 32, 2, 2), zero = p;
      std::fill(p.mlp1.blocks.begin(), p.mlp1.blocks.end(), uint8_t{0x88});
      std::fill(zero.mlp1.blocks.begin(), zero.mlp1.blocks.end(), uint8_t{0});
      EXPECT_EQ(p.run(), zero.run());
    }
  });
}

TEST(ExpertsInt8, AtTheModelsWidth) {
  for_each_simd_target([] {
    const Int8Problem p(20, 2880, 2880, 2, 1);  // more rows for each expert than the GEMV path takes
    const auto all = p.run();
    for (const int64_t t : {0, 19}) {
      const auto one = p.run(experts_int8_cpu, 2, t, 1);
      EXPECT_EQ(std::memcmp(one.data(), all.data() + t * p.H, one.size() * sizeof(float)), 0);
    }
  });
  expect_near_int8_reference(Int8Problem(1, 2880, 2880, 1, 1));
}

TEST(ExpertsInt8, BrokenContractsAreNamed) {
  const Int8Problem p(2, 64, 32, 3, 2);
  const auto broken = [&](auto&& change) {
    Int8Problem copy = p;
    change(copy);
    EXPECT_THROW(copy.run(), ContractError);
  };
  broken([](Int8Problem& q) { q.experts[3] = 3; });
  broken([](Int8Problem& q) { q.mlp1.out += 2; });
  broken([](Int8Problem& q) { q.mlp2.in += 32; });

  // Experts in bf16.
  const std::vector<bf16> plain(3 * 64 * 64);
  std::vector<float> y(p.y);
  ThreadPool pool(1);
  const int64_t bytes = experts_int8_cpu_scratch_bytes(2, 2, 3, 64, 32, 1);
  const auto scratch  = std::make_unique<CacheLine[]>(static_cast<size_t>(bytes / 64));
  const auto with     = [&](const ExpertMatrices& mlp1, int64_t scratch_bytes) {
    experts_int8_cpu({p.x.data(), {2, 64}}, {p.experts.data(), {2, 2}}, {p.weights.data(), {2, 2}},
                         {.mlp1      = mlp1,
                          .mlp1_bias = {p.bias1.data(), {3, 64}},
                          .mlp2      = p.mlp2.view(),
                          .mlp2_bias = {p.bias2.data(), {3, 64}},
                          .limit     = 7,
                          .alpha     = 1},
                         {y.data(), {2, 64}},
                         {.threads = &pool, .scratch = {scratch.get()->bytes, {scratch_bytes}}});
  };
  EXPECT_NO_THROW(with(p.mlp1.view(), bytes));
  EXPECT_THROW(with(View<const bf16, 3>(plain.data(), {3, 64, 64}), bytes), ContractError);
  EXPECT_THROW(with(p.mlp1.view(), bytes - 64), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
