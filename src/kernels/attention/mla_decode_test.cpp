#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "kernels/attention/mla_decode.h"
#include "kernels/guarded_device_buffer.h"

namespace fathom::kernels {
namespace {

constexpr double kMlaHalfUlp = 1.0 / 256, kMlaFloatHalfUlp = 1.0 / (1 << 24);
constexpr float kMlaScale = 0.07f;

struct MlaProblem {
  std::vector<int32_t> contexts;
  int64_t heads = 16;
  float size    = 1;  // of queries
};

class MlaDecodeTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << why_no_device({0});
  }

  // Shuffled pages, numbers in every context and NaN everywhere else.
  struct Inputs {
    explicit Inputs(const MlaProblem& problem) {
      std::mt19937 random(56);
      std::uniform_real_distribution<float> uniform(-1, 1);
      const auto T          = static_cast<int64_t>(problem.contexts.size());
      const int32_t longest = T ? *std::max_element(problem.contexts.begin(), problem.contexts.end()) : 0;
      per_sequence          = std::max<int64_t>(1, (longest + kMlaPage - 1) / kMlaPage);
      page_count            = T * per_sequence + 1;
      std::vector<int32_t> shuffled(static_cast<size_t>(page_count));
      std::iota(shuffled.begin(), shuffled.end(), 0);
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      latent.assign(static_cast<size_t>(page_count * kMlaPage * kMlaKey), bf16(NAN));
      pages.assign(static_cast<size_t>(T * per_sequence), -1);
      for (int64_t t = 0; t < T; ++t)
        for (int64_t j = 0; j < problem.contexts[static_cast<size_t>(t)]; ++j) {
          const auto at = static_cast<size_t>(t * per_sequence + j / kMlaPage);
          pages[at]     = shuffled[at];
          for (int64_t d = 0; d < kMlaKey; ++d) row(t, j)[d] = bf16(uniform(random));
        }
      for (int64_t i = 0; i < T * problem.heads * kMlaKey; ++i)
        q.emplace_back(uniform(random) * problem.size);
    }
    bf16* row(int64_t t, int64_t j) {
      const int32_t page = pages[static_cast<size_t>(t * per_sequence + j / kMlaPage)];
      return latent.data() + (page * kMlaPage + j % kMlaPage) * kMlaKey;
    }

    int64_t per_sequence = 0, page_count = 0;
    std::vector<bf16> latent, q;
    std::vector<int32_t> pages;
  };

  static std::vector<bf16> decode(const MlaProblem& problem, const Inputs& inputs) {
    const auto T = static_cast<int64_t>(problem.contexts.size()), H = problem.heads;
    const GuardedDeviceBuffer latent(inputs.latent), q(inputs.q);
    const GuardedDeviceBuffer pages(inputs.pages), contexts(problem.contexts);
    const GuardedDeviceBuffer<float> workspace(kMlaWorkspace);
    const GuardedDeviceBuffer<bf16> out(T * H * kMlaValue);
    mla_decode(q.view({T, H, kMlaKey}), latent.view({inputs.page_count, kMlaPage, kMlaKey}),
               contexts.view({T}), pages.view({T, inputs.per_sequence}), kMlaScale,
               workspace.view({kMlaWorkspace}), out.view({T, H, kMlaValue}), find_device({0})->stream());
    (void)workspace.read();  // nothing was written outside
    return out.read();
  }

  // Compares with a loop in double, which also bounds the error of each value: a score's absolute error is a
  // relative error of its weight, and weights are rounded to bf16 each for itself.
  static void check(const MlaProblem& problem) {
    Inputs inputs(problem);
    const std::vector<bf16> got = decode(problem, inputs);
    double worst                = 0;
    for (size_t t = 0; t < problem.contexts.size(); ++t)
      for (int64_t h = 0; h < problem.heads; ++h) {
        const auto at       = static_cast<size_t>(static_cast<int64_t>(t) * problem.heads + h);
        const bf16* query   = inputs.q.data() + at * kMlaKey;
        const auto row      = [&](int64_t j) { return inputs.row(static_cast<int64_t>(t), j); };
        const int64_t count = problem.contexts[t];
        std::vector<double> weights;
        double most = -INFINITY, products = 0, total = 0;
        for (int64_t j = 0; j < count; ++j) {
          double dot = 0, absolute = 0;
          for (int64_t d = 0; d < kMlaKey; ++d) {
            const double product = static_cast<double>(static_cast<float>(query[d])) *
                                   static_cast<double>(static_cast<float>(row(j)[d]));
            dot += product;
            absolute += std::abs(product);
          }
          weights.push_back(kMlaScale * dot);
          most     = std::max(most, weights.back());
          products = std::max(products, kMlaScale * absolute);
        }
        std::vector<double> sums(kMlaValue), absolutes(kMlaValue), squares(kMlaValue);
        for (int64_t j = 0; j < count; ++j) {
          const double weight = std::exp(weights[static_cast<size_t>(j)] - most);
          total += weight;
          for (int64_t d = 0; d < kMlaValue; ++d) {
            const double term = weight * static_cast<double>(static_cast<float>(row(j)[d]));
            sums[static_cast<size_t>(d)] += term;
            absolutes[static_cast<size_t>(d)] += std::abs(term);
            squares[static_cast<size_t>(d)] += term * term;
          }
        }
        const double in_exponent =
            std::expm1((4 * std::sqrt(576.0) + 8) * kMlaFloatHalfUlp * products) + 16 * kMlaFloatHalfUlp;
        const double in_sums = 4 * std::sqrt(static_cast<double>(count) + 1) * kMlaFloatHalfUlp;
        for (size_t d = 0; d < kMlaValue; ++d) {
          const double value    = static_cast<float>(got[at * kMlaValue + d]);
          const double expected = count ? sums[d] / total : 0;
          const double error =
              count == 0 ? 0
                         : (2 * in_exponent + 2 * in_sums) * absolutes[d] / total +
                               kMlaHalfUlp * std::min(absolutes[d], 4 * std::sqrt(squares[d])) / total +
                               kMlaHalfUlp * std::abs(expected) + std::ldexp(1, -110);
          ASSERT_LE(std::abs(value - expected), error) << "sequence " << t << " head " << h << " dimension "
                                                       << d << ": " << value << ", not " << expected;
          if (error > 0) worst = std::max(worst, std::abs(value - expected) / error);
        }
      }
    RecordProperty("part_of_bound", std::to_string(worst));
  }
};

TEST_F(MlaDecodeTest, OneBlock) { check({.contexts = {64}, .heads = 64}); }

TEST_F(MlaDecodeTest, OneSequence) {
  for (const int32_t context : {0, 1, 2, 63, 64, 65, 127, 128, 129, 257, 1009, 4097}) {
    SCOPED_TRACE("context " + std::to_string(context));
    check({.contexts = {context}});
  }
}

TEST_F(MlaDecodeTest, HeadsAroundTiles) {
  for (const int64_t heads : {1, 8, 17, 63, 64, 65, 128}) {
    SCOPED_TRACE("heads " + std::to_string(heads));
    check({.contexts = {1, 0, 65, 300}, .heads = heads});
  }
}

// 21 blocks for each CTA of an H200: sequences are cut, and parts have several of them.
TEST_F(MlaDecodeTest, RaggedBatch) {
  check({.contexts = {17, 4097, 0, 64, 9001, 1, 0, 0, 2000, 63, 12000, 128, 0}, .heads = 3});
}

TEST_F(MlaDecodeTest, ManySequences) {
  std::vector<int32_t> contexts(700);
  for (size_t i = 0; i < contexts.size(); ++i) contexts[i] = static_cast<int32_t>(i * 37 % 331);
  check({.contexts = contexts, .heads = 2});
}

TEST_F(MlaDecodeTest, OneLongSequenceInManyParts) { check({.contexts = {30011}, .heads = 2}); }

TEST_F(MlaDecodeTest, LargeScores) {
  for (const float size : {30.0f, 1e3f}) check({.contexts = {1, 64, 129, 2000}, .heads = 4, .size = size});
}

TEST_F(MlaDecodeTest, NoSequences) { check({.contexts = {}}); }

TEST_F(MlaDecodeTest, SameBitsEachTime) {
  const MlaProblem problem = {.contexts = {4097, 1000, 65, 0, 7001}, .heads = 128};
  const Inputs inputs(problem);
  const auto first = decode(problem, inputs);
  for (int again = 0; again < 10; ++again) {
    const auto other = decode(problem, inputs);
    ASSERT_EQ(std::memcmp(first.data(), other.data(), first.size() * sizeof(bf16)), 0);
  }
}

}  // namespace
}  // namespace fathom::kernels
