// A Mixture-of-Experts layer, the problem of this chapter's experiments: T tokens of 256 features, 16 experts
// of 256 hidden units, 2 experts for each token, fp32.
//   out(t, .) = sum_k gate(t, k) relu(x(t, .) W1[e]) W2[e],   e = expert(t, k)
// Routing is an input of the problem.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "experiments/tile_product.h"
#include "lab/problem.h"

namespace fathom::lab::moe {

inline constexpr int64_t kModel   = 256;
inline constexpr int64_t kHidden  = 256;
inline constexpr int64_t kExperts = 16;
inline constexpr int64_t kTopK    = 2;
inline constexpr int64_t kMatrix  = kModel * kHidden;  // elements of W1[e], and of W2[e]
static_assert(kModel % kPanel == 0 && kHidden % kPanel == 0 && kTopK == 2);

struct ExpertLayer {
  View<const float, 2> x;         // T x kModel
  View<const int32_t, 2> expert;  // T x kTopK; a token's are all different
  View<const float, 2> gate;      // T x kTopK, positive; a token's sum is 1
  // kExperts x kMatrix each, packed in panels (tile_product.h), as an engine packs weights when it loads
  // them.
  View<const float, 2> w1, w2;
  View<float, 2> out;  // T x kModel
  // Workspace: a row for each slot, which is a token and one of its experts.
  View<float, 2> gathered, hidden, result;  // T kTopK x kModel, kHidden, kModel
  View<int32_t, 1> slot_of_row;             // t kTopK + k, grouped by expert
  View<int32_t, 1> row_of_slot;             // its inverse
  View<int32_t, 1> first_row;               // of each expert, kExperts + 1

  ExpertLayer(const Point& at, Arena& arena)
      : x(arena.input<float>({at["tokens"], kModel}, Normal{})),
        expert(arena.input<int32_t>({at["tokens"], kTopK}, generate<int32_t>(route))),
        gate(arena.input<float>({at["tokens"], kTopK}, generate<float>(weigh))),
        // Standard deviations that keep hidden units and outputs near 1, as training does.
        w1(arena.input<float>({kExperts, kMatrix}, Normal{.stddev = 1 / std::sqrt(double{kModel})})),
        w2(arena.input<float>({kExperts, kMatrix}, Normal{.stddev = 1 / std::sqrt(double{kHidden})})),
        out(arena.output<float>({at["tokens"], kModel})),
        gathered(arena.workspace<float>({at["tokens"] * kTopK, kModel})),
        hidden(arena.workspace<float>({at["tokens"] * kTopK, kHidden})),
        result(arena.workspace<float>({at["tokens"] * kTopK, kModel})),
        slot_of_row(arena.workspace<int32_t>({at["tokens"] * kTopK})),
        row_of_slot(arena.workspace<int32_t>({at["tokens"] * kTopK})),
        first_row(arena.workspace<int32_t>({kExperts + 1})) {}

  // The work of the routed experts. Weights count in full: at the timed points nearly every expert has
  // tokens.
  Cost cost() const {
    const auto slots = static_cast<double>(expert.size());
    return {.read    = x.bytes() + expert.bytes() + gate.bytes() + w1.bytes() + w2.bytes(),
            .written = out.bytes(),
            .flops   = slots * (4 * kMatrix + 2 * kModel)};
  }

  void check(Checker& checker) const {
    struct Unit {
      double value, magnitude;
    };
    std::vector<std::vector<Unit>> units(static_cast<size_t>(x.extent(0)));  // of a token, kTopK x kHidden
    const auto hidden_units = [&](int64_t t) -> const std::vector<Unit>& {
      auto& of = units[static_cast<size_t>(t)];
      for (int64_t k = 0; k < kTopK && of.size() < kTopK * kHidden; ++k)
        for (int64_t h = 0; h < kHidden; ++h) {
          Unit unit{};
          for (int64_t m = 0; m < kModel; ++m) {
            const double product = static_cast<double>(x(t, m)) *
                                   w1(expert(t, k), (h / kPanel * kModel + m) * kPanel + h % kPanel);
            unit.value += product;
            unit.magnitude += std::abs(product);
          }
          of.push_back({std::max(0.0, unit.value), unit.magnitude});
        }
      return of;
    };
    checker.values("out", out, [&](int64_t t, int64_t m) {
      const auto& of = hidden_units(t);
      Sum sum{.length = kModel + kHidden + kTopK};
      for (int64_t k = 0; k < kTopK; ++k)
        for (int64_t h = 0; h < kHidden; ++h) {
          const Unit& unit    = of[static_cast<size_t>(k * kHidden + h)];
          const double weight = static_cast<double>(gate(t, k)) *
                                w2(expert(t, k), (m / kPanel * kHidden + h) * kPanel + m % kPanel);
          sum.value += unit.value * weight;
          sum.magnitude += unit.magnitude * std::abs(weight);  // relu does not enlarge an error
        }
      return sum;
    });
  }

 private:
  // Routers favour some experts. The smaller of two draws makes low experts likelier than high ones, by up to
  // 31 to 1. A token's second expert is any other.
  static void route(int32_t* experts, int64_t n, uint64_t seed) {
    std::vector<int32_t> a(static_cast<size_t>(n)), b(static_cast<size_t>(n));
    fill_integers(a.data(), n, seed, 0, kExperts);
    fill_integers(b.data(), n, seed + 1, 0, kExperts);
    for (int64_t i = 0; i < n; i += kTopK) {
      const auto at = static_cast<size_t>(i);
      experts[i]    = std::min(a[at], b[at]);
      experts[i + 1] =
          (experts[i] + 1 + a[at + 1] % static_cast<int32_t>(kExperts - 1)) % static_cast<int32_t>(kExperts);
    }
  }
  static void weigh(float* gates, int64_t n, uint64_t seed) {
    fill_uniform(gates, n, seed, 0.25, 0.75);
    for (int64_t i = 0; i < n; i += kTopK) gates[i + 1] = 1 - gates[i];
  }
};

}  // namespace fathom::lab::moe
