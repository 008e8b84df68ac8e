#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "kernels/attention/paged_decode_attention.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

constexpr int64_t kDecodePage        = 64;
constexpr double kDecodeHalfUlp      = 1.0 / 256;
constexpr double kDecodeFloatHalfUlp = 1.0 / (1 << 24);

struct DecodeProblem {
  std::vector<int32_t> contexts;
  int64_t head_size = 128, kv_heads = 2, group = 8;
  int splits               = 0;
  float size               = 2;   // of queries
  std::vector<float> sinks = {};  // of each query head, or none
  int window               = INT32_MAX;

  int64_t heads() const { return kv_heads * group; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(head_size)); }
};

// A functor's part of the reference: the first position in reach, the score of a product, and the largest
// change of the score beyond that of the product, which the kernel rounds in fp32.
struct DecodeScore {
  std::function<int64_t(int64_t context)> first                          = [](int64_t) { return 0; };
  std::function<double(double score, int64_t head, int64_t distance)> of = [](double s, int64_t, int64_t) {
    return s;
  };
  double added = 0;
};

class PagedDecodeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << why_no_device({0});
  }

  // Shuffled pages, numbers in reach and NaN everywhere else.
  struct Inputs {
    Inputs(const DecodeProblem& problem, const DecodeScore& score) : of(problem) {
      std::mt19937 random(78);
      std::uniform_real_distribution<float> uniform(-1, 1);
      const auto T          = static_cast<int64_t>(problem.contexts.size());
      const int32_t longest = T ? *std::max_element(problem.contexts.begin(), problem.contexts.end()) : 0;
      per_sequence          = std::max<int64_t>(1, (longest + kDecodePage - 1) / kDecodePage);
      page_count            = T * per_sequence + 1;
      std::vector<int32_t> shuffled(static_cast<size_t>(page_count));
      std::iota(shuffled.begin(), shuffled.end(), 0);
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      k.assign(static_cast<size_t>(page_count * problem.kv_heads * kDecodePage * problem.head_size),
               bf16(NAN));
      v = k;
      pages.assign(static_cast<size_t>(T * per_sequence), -1);
      for (int64_t t = 0; t < T; ++t)
        for (int64_t j = score.first(problem.contexts[static_cast<size_t>(t)]);
             j < problem.contexts[static_cast<size_t>(t)]; ++j) {
          const auto at = static_cast<size_t>(t * per_sequence + j / kDecodePage);
          pages[at]     = shuffled[at];
          for (int64_t head = 0; head < problem.kv_heads; ++head)
            for (int64_t d = 0; d < problem.head_size; ++d) {
              k[row(t, j, head) + static_cast<size_t>(d)] = bf16(uniform(random));
              v[row(t, j, head) + static_cast<size_t>(d)] = bf16(uniform(random));
            }
        }
      for (int64_t i = 0; i < T * problem.heads() * problem.head_size; ++i)
        q.emplace_back(uniform(random) * problem.size);
    }
    size_t row(int64_t t, int64_t j, int64_t head) const {
      const int64_t page = pages[static_cast<size_t>(t * per_sequence + j / kDecodePage)];
      return static_cast<size_t>(((page * of.kv_heads + head) * kDecodePage + j % kDecodePage) *
                                 of.head_size);
    }

    const DecodeProblem of;
    int64_t per_sequence = 0, page_count = 0;
    std::vector<bf16> k, v, q;
    std::vector<int32_t> pages;
  };

  template <class Score>
  static std::vector<bf16> decode(const Inputs& inputs, const Score& score) {
    const DecodeProblem& problem = inputs.of;
    const auto T = static_cast<int64_t>(problem.contexts.size()), H = problem.heads();
    const int64_t D      = problem.head_size,
                  floats = paged_decode_workspace(T, problem.kv_heads, D, problem.splits);
    const GuardedDeviceBuffer k(inputs.k), v(inputs.v), q(inputs.q);
    const GuardedDeviceBuffer pages(inputs.pages), contexts(problem.contexts);
    const GuardedDeviceBuffer sinks(problem.sinks);
    const GuardedDeviceBuffer<float> workspace(floats);
    const GuardedDeviceBuffer<bf16> out(T * H * D);
    paged_decode_attention({.q         = q.view({T, H, D}),
                            .k         = k.view({inputs.page_count, problem.kv_heads, kDecodePage, D}),
                            .v         = v.view({inputs.page_count, problem.kv_heads, kDecodePage, D}),
                            .contexts  = contexts.view({T}),
                            .pages     = pages.view({T, inputs.per_sequence}),
                            .scale     = problem.scale(),
                            .sinks     = sinks.view({sinks.size()}),
                            .window    = problem.window,
                            .splits    = problem.splits,
                            .workspace = workspace.view({floats}),
                            .out       = out.view({T, H, D})},
                           score, find_device({0})->stream());
    (void)workspace.read();  // nothing was written outside
    return out.read();
  }

  // Compares with a loop in double, which also bounds the error of each value: a score's absolute error is a
  // relative error of its weight, and weights are rounded to bf16 each for itself.
  template <class Score>
  static void check(const DecodeProblem& problem, const Score& score, const DecodeScore& reference = {}) {
    const Inputs inputs(problem, reference);
    const std::vector<bf16> got = decode(inputs, score);
    const auto D                = static_cast<size_t>(problem.head_size);
    double worst                = 0;
    for (size_t t = 0; t < problem.contexts.size(); ++t)
      for (int64_t h = 0; h < problem.heads(); ++h) {
        const auto at       = static_cast<size_t>(static_cast<int64_t>(t) * problem.heads() + h) * D;
        const int64_t count = problem.contexts[t], first = reference.first(count);
        const auto number = [](bf16 x) { return static_cast<double>(static_cast<float>(x)); };
        const auto row = [&](int64_t j) { return inputs.row(static_cast<int64_t>(t), j, h / problem.group); };
        std::vector<double> weights;
        double most = -INFINITY, products = 0, total = 0;
        for (int64_t j = first; j < count; ++j) {
          double dot = 0, absolute = 0;
          for (size_t d = 0; d < D; ++d) {
            const double product = number(inputs.q[at + d]) * number(inputs.k[row(j) + d]);
            dot += product;
            absolute += std::abs(product);
          }
          const double scale = static_cast<double>(problem.scale());
          weights.push_back(reference.of(scale * dot, h, count - 1 - j));
          most     = std::max(most, weights.back());
          products = std::max(products, scale * absolute);
        }
        if (!problem.sinks.empty()) {
          const double sink = static_cast<double>(problem.sinks[static_cast<size_t>(h)]);
          most              = std::max(most, sink);
          total             = std::exp(sink - most);
        }
        std::vector<double> sums(D), absolutes(D), squares(D);
        for (int64_t j = first; j < count; ++j) {
          const double weight = std::exp(weights[static_cast<size_t>(j - first)] - most);
          total += weight;
          for (size_t d = 0; d < D; ++d) {
            const double term = weight * number(inputs.v[row(j) + d]);
            sums[d] += term;
            absolutes[d] += std::abs(term);
            squares[d] += term * term;
          }
        }
        const double in_exponent = std::expm1((4 * std::sqrt(static_cast<double>(D)) + 8) *
                                              kDecodeFloatHalfUlp * (products + reference.added)) +
                                   16 * kDecodeFloatHalfUlp;
        const double in_sums = 4 * std::sqrt(static_cast<double>(count) + 1) * kDecodeFloatHalfUlp;
        for (size_t d = 0; d < D; ++d) {
          const double value = number(got[at + d]), expected = total > 0 ? sums[d] / total : 0;
          const double error =
              total > 0 ? (2 * in_exponent + 2 * in_sums) * absolutes[d] / total +
                              kDecodeHalfUlp * std::min(absolutes[d], 4 * std::sqrt(squares[d])) / total +
                              kDecodeHalfUlp * std::abs(expected) + std::ldexp(1, -110)
                        : 0;
          ASSERT_LE(std::abs(value - expected), error) << "sequence " << t << " head " << h << " dimension "
                                                       << d << ": " << value << ", not " << expected;
          if (error > 0) worst = std::max(worst, std::abs(value - expected) / error);
        }
      }
    RecordProperty("part_of_bound", std::to_string(worst));
  }
};

const std::vector<int32_t> kDecodeContexts = {0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1009, 4097};

TEST_F(PagedDecodeTest, OneSequence) {
  for (const int64_t size : {64, 128})
    for (const int splits : {0, 1, 3, 64})
      for (const int32_t context : kDecodeContexts) {
        SCOPED_TRACE("size " + std::to_string(size) + " splits " + std::to_string(splits) + " context " +
                     std::to_string(context));
        check({.contexts = {context}, .head_size = size, .splits = splits}, PlainScore{});
      }
}

TEST_F(PagedDecodeTest, RaggedBatch) {
  for (const int64_t size : {64, 128})
    for (const int64_t group : {1, 4, 8})
      for (const int splits : {0, 1, 5}) {
        SCOPED_TRACE("size " + std::to_string(size) + " group " + std::to_string(group) + " splits " +
                     std::to_string(splits));
        check({.contexts  = {17, 2049, 0, 64, 5003, 1, 0, 0, 999, 63, 128},
               .head_size = size,
               .kv_heads  = 3,
               .group     = group,
               .splits    = splits},
              PlainScore{});
      }
}

TEST_F(PagedDecodeTest, ManySequences) {
  std::vector<int32_t> contexts(300);
  for (size_t i = 0; i < contexts.size(); ++i) contexts[i] = static_cast<int32_t>(i * 37 % 331);
  for (const int splits : {0, 2})
    check({.contexts = contexts, .kv_heads = 4, .group = 2, .splits = splits}, PlainScore{});
}

TEST_F(PagedDecodeTest, OneLongSequenceInManyParts) {
  check({.contexts = {60013}, .kv_heads = 1, .group = 4}, PlainScore{});
}

TEST_F(PagedDecodeTest, LargeScores) {
  for (const float size : {1e2f, 1e4f})
    check({.contexts = {1, 64, 129, 2000}, .kv_heads = 1, .size = size}, PlainScore{});
}

TEST_F(PagedDecodeTest, SlidingWindow) {
  for (const int64_t size : {64, 128})
    for (const int window : {1, 63, 64, 65, 128, 1000})
      for (const int splits : {0, 3}) {
        SCOPED_TRACE("window " + std::to_string(window) + " splits " + std::to_string(splits));
        check({.contexts  = kDecodeContexts,
               .head_size = size,
               .kv_heads  = 1,
               .splits    = splits,
               .window    = window},
              PlainScore{},
              {.first = [=](int64_t context) { return std::max<int64_t>(0, context - window); }});
      }
}

TEST_F(PagedDecodeTest, AlibiSlopes) {
  for (const int64_t size : {64, 128})
    for (const int64_t group : {3, 8}) {
      const DecodeProblem problem = {.contexts = kDecodeContexts, .head_size = size, .group = group};
      std::vector<float> slopes;
      for (int64_t h = 0; h < problem.heads(); ++h)
        slopes.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(problem.heads())));
      const GuardedDeviceBuffer on_device(slopes);
      check(problem, Alibi{on_device.data()},
            {.of =
                 [&](double score, int64_t head, int64_t distance) {
                   return score - static_cast<double>(slopes[static_cast<size_t>(head)]) *
                                      static_cast<double>(distance);
                 },
             .added = 4097});
    }
}

TEST_F(PagedDecodeTest, Biases) {
  for (const int64_t reach : {0, 99}) {
    const DecodeProblem problem = {.contexts = kDecodeContexts, .group = 5};
    std::vector<float> bias;
    for (int64_t i = 0; i < problem.heads() * (2 * reach + 1); ++i)
      bias.push_back(static_cast<float>(i * 7 % 31) / 8);
    const GuardedDeviceBuffer on_device(bias);
    check(problem, RelativeBias{on_device.data(), static_cast<int>(reach)},
          {.of =
               [&](double score, int64_t head, int64_t distance) {
                 return score + static_cast<double>(bias[static_cast<size_t>(head * (2 * reach + 1) + reach -
                                                                             std::min(distance, reach))]);
               },
           .added = 4});
  }
}

TEST_F(PagedDecodeTest, SoftCapped) {
  for (const float size : {2.0f, 1e3f})
    check({.contexts = kDecodeContexts, .size = size}, SoftCap{20},
          {.of = [](double score, int64_t, int64_t) { return 20 * std::tanh(score / 20); }, .added = 40});
}

TEST_F(PagedDecodeTest, Sinks) {
  for (const int64_t size : {64, 128})
    for (const int64_t group : {3, 8})
      for (const int splits : {0, 1, 3}) {
        SCOPED_TRACE("size " + std::to_string(size) + " group " + std::to_string(group) + " splits " +
                     std::to_string(splits));
        DecodeProblem problem = {
            .contexts = kDecodeContexts, .head_size = size, .group = group, .splits = splits};
        for (int64_t h = 0; h < problem.heads(); ++h)  // some outweigh all positions, some none
          problem.sinks.push_back(static_cast<float>(h * 7 % 31) - 10);
        check(problem, PlainScore{}, {.added = 20});
      }
}

// By hand: waves of 132 CTAs, and 85 % of the best.
TEST(PagedDecodeSplits, AreTheFewestThatFillTheWaves) {
  EXPECT_EQ(paged_decode_splits(0, 64, 132), 1);
  EXPECT_EQ(paged_decode_splits(512, 64, 132), 1);
  EXPECT_EQ(paged_decode_splits(106, 64, 132), 1);  // 80 % of the places
  EXPECT_EQ(paged_decode_splits(105, 64, 132), 5);  // 525 of 528; 1 to 4 splits fill 79.5 %
  EXPECT_EQ(paged_decode_splits(8, 64, 132), 15);   // 120 of 132; 33 splits fill two waves
  EXPECT_EQ(paged_decode_splits(1, 4, 132), 1);
  EXPECT_EQ(paged_decode_splits(1, 5, 132), 5);
  EXPECT_EQ(paged_decode_splits(1, 4000, 132), 109);  // 85 % of the most splits, 128
}

TEST_F(PagedDecodeTest, NoSequences) { check({.contexts = {}}, PlainScore{}); }

TEST_F(PagedDecodeTest, SameBitsEachTime) {
  for (const int splits : {0, 4}) {
    const Inputs inputs({.contexts = {4097, 1000, 65, 0, 7001}, .kv_heads = 8, .splits = splits}, {});
    const auto first = decode(inputs, PlainScore{});
    for (int again = 0; again < 10; ++again) {
      const auto other = decode(inputs, PlainScore{});
      ASSERT_EQ(std::memcmp(first.data(), other.data(), first.size() * sizeof(bf16)), 0);
    }
  }
}

}  // namespace
}  // namespace fathom::kernels
