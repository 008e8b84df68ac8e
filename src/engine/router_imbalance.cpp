#include "engine/router_imbalance.h"

#include <algorithm>
#include <vector>

namespace fathom::engine {

std::optional<double> router_imbalance(View<const int64_t, 2> load) {
  const int64_t E = load.extent(1);
  std::optional<double> worst;
  for (int64_t l = 0; l < load.extent(0); ++l) {
    int64_t sum = 0, most = 0;
    for (int64_t e = 0; e < E; ++e) sum += load(l, e), most = std::max(most, load(l, e));
    if (sum == 0) continue;
    worst = std::max(worst.value_or(1), static_cast<double>(most * E) / static_cast<double>(sum));
  }
  return worst;
}

std::optional<double> rank_imbalance(View<const int64_t, 2> load, int64_t ranks) {
  const int64_t of_a_rank = load.extent(1) / ranks;
  std::vector<int64_t> by_rank(static_cast<size_t>(load.extent(0) * ranks));
  for (int64_t l = 0; l < load.extent(0); ++l)
    for (int64_t e = 0; e < load.extent(1); ++e)
      by_rank[static_cast<size_t>(l * ranks + e / of_a_rank)] += load(l, e);
  return router_imbalance(View<const int64_t, 2>(by_rank.data(), {load.extent(0), ranks}));
}

}  // namespace fathom::engine
