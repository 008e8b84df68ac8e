#include "kernels/moe/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/expect.h"

namespace fathom::kernels {
namespace {

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Routed route(const std::vector<float>& logits, int64_t num_experts, int64_t top_k) {
  const auto T = static_cast<int64_t>(logits.size()) / num_experts;
  Routed out{.experts = std::vector<int32_t>(static_cast<size_t>(T * top_k)),
             .weights = std::vector<float>(static_cast<size_t>(T * top_k))};
  router_reference({logits.data(), {T, num_experts}}, {out.experts.data(), {T, top_k}},
                   {out.weights.data(), {T, top_k}}, {});
  return out;
}

TEST(Router, LargestFirstAndSoftmaxOverThoseAlone) {
  const Routed r = route({1, 4, 2, -3, 3, 0}, 6, 3);
  EXPECT_EQ(r.experts, (std::vector<int32_t>{1, 4, 2}));
  const double total = 1 + std::exp(-1.0) + std::exp(-2.0);
  EXPECT_FLOAT_EQ(r.weights[0], static_cast<float>(1 / total));
  EXPECT_FLOAT_EQ(r.weights[1], static_cast<float>(std::exp(-1.0) / total));
  EXPECT_FLOAT_EQ(r.weights[2], static_cast<float>(std::exp(-2.0) / total));
}

TEST(Router, TheLowerIndexFirstWhereLogitsAreEqual) {
  EXPECT_EQ(route({5, 7, 7, 5, 7, 5}, 6, 4).experts, (std::vector<int32_t>{1, 2, 4, 0}));
  EXPECT_EQ(route({-INFINITY, 0, -INFINITY}, 3, 2).experts, (std::vector<int32_t>{1, 0}));
}

TEST(Router, HugeLogitsDoNotOverflow) {
  const Routed r = route({3e38f, -3e38f, 3e38f}, 3, 2);
  EXPECT_EQ(r.experts, (std::vector<int32_t>{0, 2}));
  EXPECT_FLOAT_EQ(r.weights[0], 0.5f);
  EXPECT_FLOAT_EQ(r.weights[1], 0.5f);
}

TEST(Router, NoTokensOneExpertAllExperts) {
  EXPECT_TRUE(route({}, 4, 2).experts.empty());
  EXPECT_EQ(route({3}, 1, 1).weights, std::vector<float>{1});
  EXPECT_EQ(route({1, 3, 2}, 3, 3).experts, (std::vector<int32_t>{1, 2, 0}));
  EXPECT_THROW(route({1, 3, 2}, 3, 4), ContractError);
}

}  // namespace
}  // namespace fathom::kernels
