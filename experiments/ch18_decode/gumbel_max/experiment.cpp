// Sampling without filters: with a Gumbel number for each token the draw is an argmax. Is one pass with 200
// thousand random numbers cheap?
#include "lab/experiment.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "core/gumbel.h"
#include "gumbel_max.h"

namespace fathom::lab::gumbel_max {
namespace {

using kernels::SamplingRow;

auto rules_of(float temperature) {
  return generate<uint8_t>([temperature](uint8_t* data, int64_t bytes, uint64_t seed) {
    const auto rows = static_cast<int32_t>(bytes / static_cast<int64_t>(sizeof(SamplingRow)));
    for (int32_t r = 0; r < rows; ++r) {
      const SamplingRow rule{.temperature = temperature,
                             .seed        = seed + static_cast<uint64_t>(r),
                             .position    = 100 + r,
                             .place       = r};
      std::memcpy(data + static_cast<size_t>(r) * sizeof rule, &rule, sizeof rule);
    }
  });
}

}  // namespace

Draw::Draw(const Point& at, Arena& arena)
    : rows(at["rows"]),
      vocabulary(at["vocabulary"]),
      logits(arena.input<float>({rows, vocabulary}, Normal{.mean = 0, .stddev = 6})),
      ids(arena.output<int32_t>({rows})),
      sums(arena.workspace<float>({rows, vocabulary})) {
  const auto rules_at = [&](double temperature) -> View<const SamplingRow, 1> {
    const auto bytes = arena.input<uint8_t>({rows * static_cast<int64_t>(sizeof(SamplingRow))},
                                            rules_of(static_cast<float>(temperature)));
    return {reinterpret_cast<const SamplingRow*>(bytes.data()), {rows}};
  };
  rules  = rules_at(at.real("temperature"));
  greedy = rules_at(0);
}

Cost Draw::cost() const { return {.read = logits.bytes() + rules.bytes(), .written = ids.bytes()}; }

// Sums in fp32 may change places where they are within rounding: of a quotient, two logarithms and a sum.
void Draw::check(Checker& checker) const {
  checker.values("ids", ids, [&](int64_t r) -> int64_t {
    const double temperature = rules(r).temperature;
    std::vector<double> sum(static_cast<size_t>(vocabulary));
    int64_t best = 0;
    for (int64_t v = 0; v < vocabulary; ++v) {
      sum[static_cast<size_t>(v)] = logits(r, v) / temperature + gumbel(rules(r).seed, rules(r).position, v);
      if (sum[static_cast<size_t>(v)] > sum[static_cast<size_t>(best)]) best = v;
    }
    const double most = sum[static_cast<size_t>(best)];
    const bool close  = ids(r) >= 0 && ids(r) < vocabulary &&
                       sum[static_cast<size_t>(ids(r))] >= most - (std::abs(most) + 32) * 0x1p-21;
    return close ? ids(r) : best;
  });
}

const Experiment<Draw> draw{
    .question =
        "A token is drawn from 201088 logits, without filters, as the argmax of logits and Gumbel noise: "
        "what "
        "does the noise cost, in memory, in registers, and only where it can matter?",
    .limit    = Limit::memory,
    .axes     = {{"rows", {64, 16, 1}}, {"vocabulary", {201088}}, {"temperature", {1.0}}},
    .check_at = {{"rows", {0, 1, 5}}, {"vocabulary", {4, 8, 1000, 32772}}, {"temperature", {0.25, 1.0}}},
    .variants =
        {
            {.id         = "noise_in_memory",
             .launch     = on_gpu(noise_in_memory),
             .techniques = {},
             .idea       = "noise is added in memory, then the engine's op takes the argmax",
             .prediction = predict::nothing()},
            {.id         = "one_pass",
             .launch     = on_gpu(one_pass),
             .techniques = {"kernel_fusion", "clusters", "dsmem"},
             .idea       = "noise in registers, the best in registers, a reduction in a cluster",
             .prediction = predict::ratio_at_least(1.3),
             .needs      = {machine::Feature::clusters}},
            {.id         = "screened",
             .launch     = on_gpu(screened),
             .techniques = {"kernel_fusion", "clusters", "dsmem", "warp_shuffle"},
             .idea       = "noise only for tokens that it could make the best",
             .prediction = predict::ratio_at_least(1.7),
             .needs      = {machine::Feature::clusters}},
            {.id         = "engine_op",
             .launch     = on_gpu(engine_op),
             .techniques = {"kernel_fusion", "clusters", "dsmem", "warp_shuffle"},
             .idea       = "the same in the engine's op",
             .prediction = predict::ratio_at_least(1.6),
             .kind       = Kind::engine,
             .op         = "kernels/sampling/sample.h",
             .needs      = {machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
    .catalog = {"specdec-001"},
};
FATHOM_REGISTER(draw);

}  // namespace fathom::lab::gumbel_max
