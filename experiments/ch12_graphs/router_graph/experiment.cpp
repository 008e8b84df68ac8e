// Which experts run is known only after the router has run, on the GPU. The host can read the choice and
// launch those experts, a graph can branch, or kernels can look up the weights.
#include "lab/experiment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/rng.h"
#include "layer.h"

namespace fathom::lab::router_graph {
namespace {

// Multiples of 1/64 in [-1, 1].
Generate sixty_fourths() {
  return generate<bf16>([](bf16* data, int64_t n, uint64_t seed) {
    std::vector<int32_t> k(static_cast<size_t>(n));
    fill_integers(k.data(), n, seed, -64, 65);
    for (int64_t i = 0; i < n; ++i) data[i] = bf16(static_cast<float>(k[static_cast<size_t>(i)]) / 64);
  });
}

Uniform uniform_up_to(double limit) { return {-limit, limit}; }

double value(const bf16& x) { return static_cast<double>(static_cast<float>(x)); }

}  // namespace

Layer::Layer(const Point& at, Arena& arena)
    : width(at["width"]),
      x(arena.input<bf16>({width}, sixty_fourths())),
      router(arena.input<bf16>({at["experts"], width}, sixty_fourths())),
      up(arena.input<bf16>({at["experts"], width, width},
                           uniform_up_to(1 / std::sqrt(std::max(1.0, static_cast<double>(width)))))),
      down(arena.input<bf16>({at["experts"], width, width},
                             uniform_up_to(1 / std::sqrt(std::max(1.0, static_cast<double>(width)))))),
      out(arena.output<float>({width})),
      fired(arena.output<int32_t>({width > 0 ? at["experts"] : 0})),
      chosen(arena.workspace<int32_t>({kTopK})),
      weight(arena.workspace<float>({kTopK})),
      hidden(arena.workspace<float>({kTopK, width})),
      partial(arena.workspace<float>({kTopK, width})),
      on_host(arena.workspace<int32_t>({kTopK}, Pages::small, Place::pinned)) {
  FATHOM_EXPECT(width >= 0 && width % kMultiple == 0 && width <= 2048,
                "widths are multiples of 8 up to 2048, for which logits are exact");
  FATHOM_EXPECT(at["experts"] >= kTopK && at["experts"] <= kMaxExperts, "4 to 32 experts");
}

Cost Layer::cost() const {
  const double weights = 2.0 * kTopK * static_cast<double>(width) * static_cast<double>(width);
  return {.read    = x.bytes() + router.bytes() + static_cast<int64_t>(weights) * int64_t{sizeof(bf16)},
          .written = out.bytes() + fired.bytes(),
          .flops   = 2 * weights};
}

void Layer::check(Checker& checker) const {
  const auto n = static_cast<size_t>(width);
  std::vector<double> logits(static_cast<size_t>(experts()), 0);
  for (int64_t e = 0; e < experts(); ++e)
    for (int64_t h = 0; h < width; ++h)
      logits[static_cast<size_t>(e)] += value(router(e, h)) * value(x(h)) / 16;

  std::vector<int64_t> fired_at(logits.size(), 0);
  std::array<double, kTopK> weights{};
  std::array<int64_t, kTopK> experts_of{};
  double sum = 0;
  for (size_t place = 0; place < kTopK; ++place) {
    size_t best = logits.size();
    for (size_t e = 0; e < logits.size(); ++e)
      if (fired_at[e] == 0 && (best == logits.size() || logits[e] > logits[best])) best = e;
    fired_at[best]        = static_cast<int64_t>(place) + 1;
    experts_of[place]     = static_cast<int64_t>(best);
    sum += weights[place] = std::exp(logits[best] - logits[static_cast<size_t>(experts_of[0])]);
  }
  if (width > 0) checker.values("fired", fired, [&](int64_t e) { return fired_at[static_cast<size_t>(e)]; });

  std::vector<double> expected(n, 0), magnitude(n, 0), hidden_value(n), hidden_magnitude(n);
  for (size_t place = 0; place < kTopK; ++place) {
    const int64_t e = experts_of[place];
    for (int64_t i = 0; i < width; ++i) {
      double total = 0, of_terms = 0;
      for (int64_t h = 0; h < width; ++h) {
        const double term = value(up(e, i, h)) * value(x(h));
        total += term;
        of_terms += std::abs(term);
      }
      hidden_value[static_cast<size_t>(i)]     = std::max(total, 0.0);
      hidden_magnitude[static_cast<size_t>(i)] = of_terms;
    }
    for (int64_t i = 0; i < width; ++i)
      for (int64_t h = 0; h < width; ++h) {
        const double w = weights[place] / sum * value(down(e, i, h));
        expected[static_cast<size_t>(i)] += w * hidden_value[static_cast<size_t>(h)];
        magnitude[static_cast<size_t>(i)] += std::abs(w) * hidden_magnitude[static_cast<size_t>(h)];
      }
  }
  checker.values("out", out, [&](int64_t i) {
    return Sum{.value     = expected[static_cast<size_t>(i)],
               .magnitude = magnitude[static_cast<size_t>(i)],
               .length    = 2 * width + 16};
  });
}

namespace {

const Experiment<Layer> layer{
    .question =
        "A router chooses 4 of the experts of a layer: what does it cost that the host launches those, and "
        "what do a graph that branches, and kernels that look up the expert, cost instead?",
    .limit    = Limit::memory,
    .axes     = {{"experts", {32, 8}}, {"width", {1024}}},
    .check_at = {{"experts", {4, 5, 32}}, {"width", {0, 8, 64, 248, 256, 264}}},
    .variants =
        {
            {.id         = "host_branches",
             .launch     = on_gpu(host_branches),
             .techniques = {},
             .idea       = "the host reads the choice and launches nine kernels",
             .syncs      = true},  // here and below: the host's part is the subject
            // About 35 us: the router, some 10 us for the host to learn of it, nine launches. In the graph
            // nine kernels of 2 us and four nodes of 2.
            {.id         = "switch_nodes",
             .techniques = {"graph_replay", "conditional_nodes"},
             .idea       = "one graph: a SWITCH node for each of the four places, a body for each expert",
             .prediction = predict::ratio_at_least(1.5),
             .prepare    = prepared_on_gpu(switch_nodes),
             .syncs      = true},
            // 13 us of kernels and one node's 8 us, if nodes don't wait for each other.
            {.id         = "switches_side_by_side",
             .techniques = {"graph_replay", "conditional_nodes"},
             .idea       = "the same four nodes, none of which waits for another",
             .prediction = predict::ratio_at_least(1.5),
             .prepare    = prepared_on_gpu(switches_side_by_side),
             .syncs      = true},
            {.id         = "if_nodes",
             .techniques = {"graph_replay", "conditional_nodes"},
             .idea       = "an IF node for each expert in place of a SWITCH node for each place",
             .prediction = predict::ratio_at_least(0.8),
             .prepare    = prepared_on_gpu(if_nodes),
             .up_to      = {{"experts", 8}},  // with 32 branches the GPU is not idle behind the graph
             .syncs      = true},
            {.id         = "indexed_each",
             .techniques = {"graph_replay"},
             .idea       = "one graph without branches: the same ten kernels, which look up the expert",
             .prediction = predict::ratio_at_least(1.8),
             .prepare    = prepared_on_gpu(indexed_each),
             .syncs      = true},
            {.id         = "indexed",
             .techniques = {"graph_replay"},
             .idea       = "one graph without branches: four kernels, which look up the expert",
             .prediction = predict::ratio_at_least(2.5),
             .prepare    = prepared_on_gpu(indexed),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .cache   = Cache::hot,
    .sets    = 1,  // a graph holds the addresses it was captured with
    .catalog = {"graphs-003", "graphs-012", "usecase-013"},
};
FATHOM_REGISTER(layer);

}  // namespace
}  // namespace fathom::lab::router_graph
