#include <cmath>

#include "core/expect.h"
#include "kernels/moe/router.h"

namespace fathom::kernels {

void router_reference(View<const float, 2> logits, View<int32_t, 2> experts, View<float, 2> weights,
                      const Execution&) {
  const int64_t top_k = experts.extent(1);
  FATHOM_EXPECT(experts.extent(0) == logits.extent(0) && weights.extent(0) == logits.extent(0) &&
                    weights.extent(1) == top_k && top_k <= logits.extent(1),
                "router: logits are [T, E], experts and weights [T, top_k], top_k at most E");
  for (int64_t t = 0; t < logits.extent(0); ++t) {
    const auto taken = [&](int32_t e, int64_t k) {
      for (int64_t i = 0; i < k; ++i)
        if (experts(t, i) == e) return true;
      return false;
    };
    for (int64_t k = 0; k < top_k; ++k) {
      int32_t best = -1;
      for (int32_t e = 0; e < logits.extent(1); ++e)
        if (!taken(e, k) && (best < 0 || logits(t, e) > logits(t, best))) best = e;
      experts(t, k) = best;
    }
    double total = 0;
    for (int64_t k = 0; k < top_k; ++k)
      total += std::exp(static_cast<double>(logits(t, experts(t, k))) - logits(t, experts(t, 0)));
    for (int64_t k = 0; k < top_k; ++k)
      weights(t, k) = static_cast<float>(
          std::exp(static_cast<double>(logits(t, experts(t, k))) - logits(t, experts(t, 0))) / total);
  }
}

}  // namespace fathom::kernels
