// The problem: a two-layer perceptron on a batch of samples, out = relu(x W1) W2, 256 features, 1024 hidden
// units, fp32.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "experiments/tile_product.h"
#include "lab/problem.h"

namespace fathom::lab::mlp_batched_cpu {

inline constexpr int64_t kModel  = 256;
inline constexpr int64_t kHidden = 1024;
// So many rows of a panel stay in L1 with the six rows that they are multiplied by.
inline constexpr int64_t kDepth = 256;
// Rows of hidden units are a line longer, so that the six of a register tile do not share the sets of a
// cache.
inline constexpr int64_t kHiddenStride = kHidden + kPanel;
static_assert(kModel % kPanel == 0 && kHidden % kPanel == 0);

struct Mlp {
  View<const float, 2> x;       // samples x kModel
  View<const float, 1> w1, w2;  // kModel x kHidden and kHidden x kModel, in packed panels (tile_product.h)
  View<float, 2> out;           // samples x kModel
  View<float, 2> hidden;        // samples x kHiddenStride

  Mlp(const Point& at, Arena& arena)
      : x(arena.input<float>({at["samples"], kModel}, Normal{})),
        // Standard deviations that keep hidden units and outputs near 1, as training does.
        w1(arena.input<float>({kModel * kHidden}, Normal{.stddev = 1 / std::sqrt(double{kModel})})),
        w2(arena.input<float>({kHidden * kModel}, Normal{.stddev = 1 / std::sqrt(double{kHidden})})),
        out(arena.output<float>({at["samples"], kModel})),
        hidden(arena.workspace<float>({at["samples"], kHiddenStride})) {}

  Cost cost() const {
    return {.read    = x.bytes() + w1.bytes() + w2.bytes(),
            .written = out.bytes(),
            .flops   = 4.0 * static_cast<double>(x.extent(0)) * kModel * kHidden};
  }

  void metrics(CallMetrics& metrics) const {
    metrics["samples"] = {static_cast<double>(x.extent(0)), "higher"};
  }

  void check(Checker& checker) const {
    struct Unit {
      double value, magnitude;
    };
    std::vector<Unit> units;  // of sample `known`
    int64_t known           = -1;
    const auto hidden_units = [&](int64_t s) {
      if (s == known) return;
      known = s;
      units.clear();
      for (int64_t h = 0; h < kHidden; ++h) {
        Unit unit{};
        for (int64_t m = 0; m < kModel; ++m) {
          const double product =
              static_cast<double>(x(s, m)) * w1((h / kPanel * kModel + m) * kPanel + h % kPanel);
          unit.value += product;
          unit.magnitude += std::abs(product);
        }
        units.push_back({std::max(0.0, unit.value), unit.magnitude});
      }
    };
    checker.values("out", out, [&](int64_t s, int64_t m) {
      hidden_units(s);
      Sum sum{.length = kModel + kHidden};
      for (int64_t h = 0; h < kHidden; ++h) {
        const double weight = w2((m / kPanel * kHidden + h) * kPanel + m % kPanel);
        const Unit& unit    = units[static_cast<size_t>(h)];
        sum.value += unit.value * weight;
        sum.magnitude += unit.magnitude * std::abs(weight);  // relu does not enlarge an error
      }
      return sum;
    });
  }
};

// Samples [begin, end) through both layers.
inline void forward(const Mlp& p, int64_t begin, int64_t end) {
  const int64_t samples = end - begin;
  if (samples == 0) return;
  float* hidden = &p.hidden(begin, 0);
  product(samples, kHidden, kModel, &p.x(begin, 0), kModel, packed_panels(p.w1.data(), kModel), hidden,
          kHiddenStride, false);
  for (int64_t s = 0; s < samples; ++s)
    for (int64_t h = 0; h < kHidden; ++h)
      hidden[s * kHiddenStride + h] = std::max(hidden[s * kHiddenStride + h], 0.0f);
  for (int64_t h = 0; h < kHidden; h += kDepth)
    product(samples, kModel, kDepth, hidden + h, kHiddenStride,
            {p.w2.data() + h * kPanel, kPanel, kHidden * kPanel}, &p.out(begin, 0), kModel, h > 0);
}

void sample_by_sample(const Mlp&, Context&);
void batched(const Mlp&, Context&);

}  // namespace fathom::lab::mlp_batched_cpu
