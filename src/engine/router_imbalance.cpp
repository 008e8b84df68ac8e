#include "engine/router_imbalance.h"

#include <algorithm>

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

}  // namespace fathom::engine
