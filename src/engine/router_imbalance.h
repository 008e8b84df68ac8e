// How unevenly a router spreads tokens over experts.
#pragma once

#include <cstdint>
#include <optional>

#include "core/view.h"

namespace fathom::engine {

// Load of a layer's most loaded expert over the mean of its experts, of the layer where that is largest: 1 is
// even, the number of experts the worst. `load` [layers, E] counts tokens; none where no token was counted.
// With tokens of ranks, [layers, ranks], it says the same of ranks (expert parallelism).
std::optional<double> router_imbalance(View<const int64_t, 2> load);

}  // namespace fathom::engine
