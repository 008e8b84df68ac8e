// A decode step is a chain of kernels of a few microseconds each. A graph saves the host's launch of each.
// Programmatic dependent launch overlaps the end of one kernel with the beginning of the next. How much time
// does each save, and how much do both?
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "chain.h"

namespace fathom::lab::dependent_launch {

namespace {

Uniform uniform_up_to(double limit) { return {-limit, limit}; }

}  // namespace

// W y is then about 0.6 times as large as y, so that x grows slowly from layer to layer.
Chain::Chain(const Point& at, Arena& arena)
    : width(at["width"]),
      x(arena.input<float>({width}, Normal{})),
      norm(arena.input<float>({kLayers, width}, Uniform{0.5, 1.5})),
      w(arena.input<bf16>({kLayers, width, width},
                          uniform_up_to(1 / std::sqrt(std::max(1.0, static_cast<double>(width)))))),
      out(arena.output<float>({width})),
      y(arena.workspace<float>({width})) {
  FATHOM_EXPECT(width >= 0 && width % kMultiple == 0 && width <= kMaxWidth,
                "the kernels are for widths up to 2048, multiples of 8");
}

Cost Chain::cost() const {
  return {.read    = x.bytes() + norm.bytes() + w.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * static_cast<double>(w.size())};
}

void Chain::check(Checker& checker) const {
  const auto n = static_cast<size_t>(width);
  std::vector<double> now(n), normed(n), magnitude(n);
  for (size_t i = 0; i < n; ++i) magnitude[i] = std::abs(now[i] = x.data()[i]);
  for (int64_t l = 0; l < kLayers; ++l) {
    double squares = 0;
    for (const double v : now) squares += v * v;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(kEpsilon));
    for (size_t k = 0; k < n; ++k) normed[k] = now[k] * scale * norm(l, static_cast<int64_t>(k));
    for (size_t i = 0; i < n; ++i) {
      const bf16* row = &w(l, static_cast<int64_t>(i), 0);
      double sum = 0, of_terms = 0;
      for (size_t k = 0; k < n; ++k) {
        const double term = static_cast<double>(static_cast<float>(row[k])) * normed[k];
        sum += term;
        of_terms += std::abs(term);
      }
      now[i] += sum;
      magnitude[i] += of_terms;
    }
  }
  // An error of x reaches the next layers through matrices that shrink it as they shrink y. So the sum of
  // the magnitudes of all layers' terms bounds it.
  checker.values("out", out, [&](int64_t i) {
    return Sum{.value     = now[static_cast<size_t>(i)],
               .magnitude = magnitude[static_cast<size_t>(i)],
               .length    = width + 8};
  });
}

const Experiment<Chain> chain{
    .question =
        "How much time lies between the 48 small kernels of a chain, and how much of it does a graph save, "
        "letting each kernel begin before the one before it ends, or both?",
    .limit = Limit::memory,
    // 2048: 8.4 MB of weights a layer, about 2 us of DRAM. 768: 1.2 MB a layer; all layers fit in L2.
    .axes     = {{"width", {2048, 768}}},
    .check_at = {{"width", {0, 8, 24, 248, 256, 264, 1024, 2048}}},
    .variants =
        {
            {.id         = "launched",
             .launch     = on_gpu(launched),
             .techniques = {},
             .idea       = "48 launches into a stream",
             .prediction = predict::nothing(),
             .syncs      = true},  // here and below: the host's launches are part of the time
            {.id         = "graph",
             .techniques = {"graph_replay"},
             .idea       = "the same kernels captured once; a call is one graph launch",
             .prediction = predict::ratio_at_least(1.1),
             .prepare    = prepared_on_gpu(graph),
             .syncs      = true},
            {.id         = "dependent",
             .launch     = on_gpu(dependent),
             .techniques = {"programmatic_dependent_launch"},
             .idea       = "48 launches; a kernel begins early and loads its weights before it waits",
             .prediction = predict::ratio_at_least(0.95),
             .needs =
                 {machine::Feature::clusters},  // programmatic dependent launch needs sm_90, as clusters do
             .syncs = true},
            {.id         = "dependent_graph",
             .techniques = {"graph_replay", "programmatic_dependent_launch"},
             .idea       = "a graph captured from those launches",
             .prediction = predict::ratio_at_least(1.7),
             .prepare    = prepared_on_gpu(dependent_graph),
             .needs      = {machine::Feature::clusters},
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .cache   = Cache::hot,
    .sets    = 1,  // a graph holds the addresses it was captured with
    .catalog = {"graphs-001", "graphs-009"},
};
FATHOM_REGISTER(chain);

}  // namespace fathom::lab::dependent_launch
