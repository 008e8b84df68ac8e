#include "engine/router_imbalance.h"

#include <gtest/gtest.h>

#include <vector>

namespace fathom::engine {
namespace {

std::optional<double> of(const std::vector<int64_t>& load, int64_t layers) {
  const auto E = static_cast<int64_t>(load.size()) / layers;
  return router_imbalance(View<const int64_t, 2>(load.data(), {layers, E}));
}

TEST(RouterImbalance, IsTheWorstLayersMostLoadedExpertOverTheMean) {
  EXPECT_EQ(of({5, 5, 5, 5}, 1), 1.0);
  EXPECT_EQ(of({8, 0, 0, 0}, 1), 4.0);
  EXPECT_EQ(of({2, 2, 2, 2, /**/ 1, 3, 2, 2}, 2), 1.5);
  EXPECT_EQ(of({1, 3, 2, 2, /**/ 2, 2, 2, 2}, 2), 1.5);
}

TEST(RouterImbalance, IsAbsentWhereNoTokenWasCounted) {
  EXPECT_EQ(router_imbalance({}), std::nullopt);
  EXPECT_EQ(of({0, 0, 0, 0}, 2), std::nullopt);
  EXPECT_EQ(of({0, 0, /**/ 3, 1}, 2), 1.5);
}

TEST(RouterImbalance, OfRanksIsThatOfTheirExpertsTogether) {
  const std::vector<int64_t> load = {8, 0, 0, 0, /**/ 1, 3, 2, 6};
  const View<const int64_t, 2> two_layers(load.data(), {2, 4});
  EXPECT_EQ(rank_imbalance(two_layers, 1), 1.0);
  EXPECT_EQ(rank_imbalance(two_layers, 2), 2.0);
  EXPECT_EQ(rank_imbalance(two_layers, 4), router_imbalance(two_layers));
  const View<const int64_t, 2> second(load.data() + 4, {1, 4});
  EXPECT_EQ(rank_imbalance(second, 2), 8.0 / 6);
  EXPECT_EQ(rank_imbalance({}, 2), std::nullopt);
}

}  // namespace
}  // namespace fathom::engine
