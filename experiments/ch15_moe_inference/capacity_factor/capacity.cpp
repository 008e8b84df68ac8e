#include "experiments/ch15_moe_inference/capacity_factor/capacity.h"

#include <array>
#include <cmath>

#include "core/expect.h"

namespace fathom::lab::capacity_factor {

int64_t capacity_of(double factor, int64_t tokens, int64_t top_k, int64_t experts) {
  FATHOM_EXPECT(factor > 0 && experts > 0, "a capacity factor is positive, and there is at least one expert");
  return static_cast<int64_t>(
      std::ceil(factor * static_cast<double>(tokens * top_k) / static_cast<double>(experts)));
}

void route(View<const float, 2> logits, Overflow overflow, int64_t capacity, View<int32_t, 2> chosen,
           View<float, 2> gates) {
  const int64_t tokens = logits.extent(0), experts = logits.extent(1), top_k = chosen.extent(1);
  FATHOM_EXPECT(experts <= 64 && top_k <= experts, "at most 64 experts, and no more choices than experts");
  // The best expert of a token, of those for which allowed(e); -1: none.
  const auto best = [&](int64_t t, auto&& allowed) {
    int32_t found = -1;
    for (int32_t e = 0; e < experts; ++e)
      if (allowed(e) && (found < 0 || logits(t, e) > logits(t, found))) found = e;
    return found;
  };
  for (int64_t t = 0; t < tokens; ++t) {
    uint64_t taken = 0;
    float sum      = 0;
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t e = best(t, [&](int32_t other) { return !(taken >> other & 1); });
      taken |= uint64_t{1} << e;
      chosen(t, k) = e;
      gates(t, k)  = std::exp(logits(t, e) - logits(t, chosen(t, 0)));
      sum += gates(t, k);
    }
    for (int64_t k = 0; k < top_k; ++k) gates(t, k) /= sum;
  }
  if (overflow == Overflow::none) return;

  std::array<int64_t, 64> load{};
  for (int64_t k = 0; k < top_k; ++k)
    for (int64_t t = 0; t < tokens; ++t) {
      const int32_t wanted = chosen(t, k);
      if (load[static_cast<size_t>(wanted)] < capacity) {
        ++load[static_cast<size_t>(wanted)];
        continue;
      }
      int32_t to = -1;
      if (overflow == Overflow::next_choice)
        to = best(t, [&](int32_t e) {
          if (load[static_cast<size_t>(e)] >= capacity) return false;
          for (int64_t other = 0; other < top_k; ++other)
            if (chosen(t, other) == e) return false;
          return true;
        });
      gates(t, k)  = to < 0 ? 0 : gates(t, k) * std::exp(logits(t, to) - logits(t, wanted));
      chosen(t, k) = to;
      if (to >= 0) ++load[static_cast<size_t>(to)];
    }
}

}  // namespace fathom::lab::capacity_factor
