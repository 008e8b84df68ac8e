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

}  // namespace
}  // namespace fathom::engine
