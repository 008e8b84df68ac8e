#include "kernels/moe/rmsnorm_router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/expect.h"
#include "core/rng.h"
#include "cuda/device.h"
#include "kernels/guarded_device_buffer.h"
#include "kernels/moe/router.h"
#include "kernels/norm/rmsnorm.h"

namespace fathom::kernels {
namespace {

constexpr float kEps = 1e-5f;

class ExpertChoice : public testing::Test {
 protected:
  void SetUp() override {
    if (!find_device({0})) GTEST_SKIP() << "needs a GPU: " << why_no_device({0});
  }
};

struct Layer {
  int64_t count, width, experts, top_k;
  std::vector<float> x, weight, bias;
  std::vector<bf16> router;
  std::vector<int32_t> positions;

  Layer(int64_t count, int64_t width, int64_t experts, int64_t top_k)
      : count(count),
        width(width),
        experts(experts),
        top_k(top_k),
        x(static_cast<size_t>(count * width)),
        weight(static_cast<size_t>(width)),
        bias(static_cast<size_t>(experts)),
        router(static_cast<size_t>(experts * width)),
        positions(static_cast<size_t>(count)) {
    fill_normal(x.data(), count * width, 1, 0, 3);
    fill_uniform(weight.data(), width, 2, 0.5, 1.5);
    fill_normal(bias.data(), experts, 3, 0, 0.5);
    fill_normal(router.data(), experts * width, 4, 0, 1 / std::sqrt(static_cast<double>(width)));
    for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(t);
  }
};

struct Choice {
  std::vector<bf16> y;
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Choice choose(const Layer& l) {
  GuardedDeviceBuffer<float> x(l.x), weight(l.weight), bias(l.bias), weights(l.count * l.top_k);
  GuardedDeviceBuffer<bf16> router(l.router), y(l.count * l.width);
  GuardedDeviceBuffer<int32_t> positions(l.positions), experts(l.count * l.top_k);
  rmsnorm_router(
      x.view<2>({l.count, l.width}), weight.view<1>({l.width}), kEps, router.view<2>({l.experts, l.width}),
      bias.view<1>({l.experts}), positions.view<1>({l.count}), y.view<2>({l.count, l.width}),
      experts.view<2>({l.count, l.top_k}), weights.view<2>({l.count, l.top_k}), find_device({0})->stream());
  EXPECT_EQ(x.read(), l.x);
  return {y.read(), experts.read(), weights.read()};
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Compares y with the reference, and the chosen experts with those of logits in double from the op's own y. A
// logit may be off by 4 sqrt(H) u sum |router y|. Experts may change places where their logits are closer
// than twice that, and a weight has at most twice that as relative error, and some u of its own.
void expect_chosen(const Layer& l, const Choice& got) {
  std::vector<float> normalized(l.x.size());
  rmsnorm_reference({l.x.data(), {l.count, l.width}}, {l.weight.data(), {l.width}}, static_cast<double>(kEps),
                    {normalized.data(), {l.count, l.width}}, {});
  for (size_t i = 0; i < normalized.size(); ++i)
    ASSERT_LE(std::abs(static_cast<float>(got.y[i]) - normalized[i]),
              (0x1p-8 + 16 * 0x1p-24) * std::abs(normalized[i]))
        << "at " << i;

  std::vector<double> logits(static_cast<size_t>(l.experts));
  for (int64_t t = 0; t < l.count; ++t) {
    double off = 0;
    for (int64_t e = 0; e < l.experts; ++e) {
      double sum = l.bias[static_cast<size_t>(e)], magnitude = std::abs(sum);
      for (int64_t h = 0; h < l.width; ++h) {
        const double product =
            static_cast<double>(static_cast<float>(l.router[static_cast<size_t>(e * l.width + h)])) *
            static_cast<float>(got.y[static_cast<size_t>(t * l.width + h)]);
        sum += product;
        magnitude += std::abs(product);
      }
      logits[static_cast<size_t>(e)] = sum;
      off = std::max(off, 4 * std::sqrt(static_cast<double>(l.width)) * 0x1p-24 * magnitude);
    }
    const int32_t* chosen = &got.experts[static_cast<size_t>(t * l.top_k)];
    std::vector<int> taken(logits.size());
    double total = 0, least = INFINITY;
    for (int64_t k = 0; k < l.top_k; ++k) {
      ASSERT_GE(chosen[k], 0);
      ASSERT_LT(chosen[k], l.experts);
      ASSERT_EQ(taken[static_cast<size_t>(chosen[k])]++, 0) << "chosen twice";
      const double logit = logits[static_cast<size_t>(chosen[k])];
      ASSERT_LE(logit, least + 2 * off) << "row " << t << ": not in order";
      least = std::min(least, logit);
      total += std::exp(logit - logits[static_cast<size_t>(chosen[0])]);
    }
    for (size_t e = 0; e < logits.size(); ++e)
      ASSERT_TRUE(taken[e] || logits[e] <= least + 2 * off)
          << "row " << t << ": expert " << e << " is missing";
    for (int64_t k = 0; k < l.top_k; ++k) {
      const double expected =
          std::exp(logits[static_cast<size_t>(chosen[k])] - logits[static_cast<size_t>(chosen[0])]) / total;
      ASSERT_NEAR(got.weights[static_cast<size_t>(t * l.top_k + k)], expected,
                  expected * (4 * off + 16 * 0x1p-24));
    }
  }
}

TEST_F(ExpertChoice, AgreesWithTheReferences) {
  struct Shape {
    int64_t width, experts, top_k;
  };
  for (const auto& [width, experts, top_k] :
       {Shape{256, 8, 4}, Shape{2880, 32, 4}, Shape{64, 5, 1}, Shape{320, 33, 8}, Shape{16, 8, 8},
        Shape{3072, 128, 8}, Shape{2880, 128, 4}, Shape{1040, 100, 3}})
    for (const int64_t count : {0, 1, 2, 7, 8, 9, 16, 17, 63, 129}) {
      SCOPED_TRACE(testing::Message() << count << " x " << width << ", " << top_k << " of " << experts);
      const Layer layer(count, width, experts, top_k);
      const auto got = choose(layer);
      ASSERT_NO_FATAL_FAILURE(expect_chosen(layer, got));
      const auto again = choose(layer);
      EXPECT_TRUE(same_bits(got.y, again.y));
      EXPECT_EQ(got.experts, again.experts);
      EXPECT_TRUE(same_bits(got.weights, again.weights));
    }
}

// So many rows that clusters iterate.
TEST_F(ExpertChoice, RowsByTurns) {
  for (const int64_t experts : {32, 128})
    for (const int64_t count : {1041, 1700}) {
      SCOPED_TRACE(testing::Message() << count << ", " << experts << " experts");
      const Layer layer(count, 320, experts, 4);
      const auto got = choose(layer);
      ASSERT_NO_FATAL_FAILURE(expect_chosen(layer, got));
      EXPECT_EQ(choose(layer).experts, got.experts);
    }
}

TEST_F(ExpertChoice, ARowsBitsDependOnNothingButTheRow) {
  const Layer many(1100, 2880, 32, 4);
  const auto all = choose(many);
  for (const int64_t t : {0, 7, 8, 128, 1099}) {
    Layer one(1, 2880, 32, 4);
    one.x.assign(many.x.begin() + t * 2880, many.x.begin() + (t + 1) * 2880);
    const auto alone = choose(one);
    EXPECT_TRUE(same_bits(alone.y, {all.y.begin() + t * 2880, all.y.begin() + (t + 1) * 2880}));
    EXPECT_EQ(alone.experts,
              std::vector<int32_t>(all.experts.begin() + t * 4, all.experts.begin() + t * 4 + 4));
    EXPECT_TRUE(same_bits(alone.weights, {all.weights.begin() + t * 4, all.weights.begin() + t * 4 + 4}));
  }
}

// All logits are equal but for the bias, which is exact: the order is the reference's, ties included.
TEST_F(ExpertChoice, TiesAndOrderAreTheReferences) {
  for (const int64_t experts : {8, 32, 128}) {
    Layer layer(40, 64, experts, 8);
    std::fill(layer.router.begin(), layer.router.end(), bf16(0));
    for (size_t e = 0; e < layer.bias.size(); ++e)
      layer.bias[e] = e % 7 == 3    ? 2.0f
                      : e % 5 == 0  ? -0.0f
                      : e % 5 == 1  ? 0.0f
                      : e % 11 == 2 ? -1e30f
                                    : -3.0f;
    const auto got = choose(layer);
    std::vector<float> logits;
    for (int64_t t = 0; t < 40; ++t) logits.insert(logits.end(), layer.bias.begin(), layer.bias.end());
    std::vector<int32_t> ids(40 * 8);
    std::vector<float> weights(40 * 8);
    router_reference({logits.data(), {40, experts}}, {ids.data(), {40, 8}}, {weights.data(), {40, 8}}, {});
    EXPECT_EQ(got.experts, ids);
    for (size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(got.weights[i], weights[i], 16 * 0x1p-24);
  }
}

TEST_F(ExpertChoice, PaddingHasNoExpertsWhateverIsInIt) {
  Layer layer(35, 320, 32, 4);
  for (const size_t t : {1, 15, 16, 34}) {
    layer.positions[t] = -1;
    std::fill_n(layer.x.begin() + static_cast<int64_t>(t) * 320, 320, t == 15 ? 0.0f : 1e30f);
  }
  const auto got = choose(layer);
  const auto all = choose(Layer(35, 320, 32, 4));
  for (size_t i = 0; i < got.experts.size(); ++i) {
    const bool padding = layer.positions[i / 4] < 0;
    EXPECT_EQ(got.experts[i], padding ? -1 : all.experts[i]);
    EXPECT_EQ(got.weights[i], padding ? 0 : all.weights[i]);
  }
}

TEST_F(ExpertChoice, ShapesThatDoNotFitAreABrokenContract) {
  GuardedDeviceBuffer<float> numbers(4096);
  GuardedDeviceBuffer<bf16> matrix(4096);
  GuardedDeviceBuffer<int32_t> ids(64);
  const auto with = [&](int64_t width, int64_t experts, int64_t top_k) {
    rmsnorm_router(numbers.view<2>({1, width}), numbers.view<1>({width}), kEps,
                   matrix.view<2>({experts, width}), numbers.view<1>({experts}), ids.view<1>({1}),
                   matrix.view<2>({1, width}), ids.view<2>({1, top_k}), numbers.view<2>({1, top_k}), nullptr);
  };
  EXPECT_THROW(with(24, 8, 4), ContractError);
  EXPECT_THROW(with(3088, 8, 4), ContractError);
  EXPECT_THROW(with(16, 129, 4), ContractError);
  EXPECT_THROW(with(16, 32, 9), ContractError);
  EXPECT_THROW(with(16, 4, 5), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
