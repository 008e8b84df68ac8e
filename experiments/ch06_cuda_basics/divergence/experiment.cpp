// A warp executes one instruction stream at a time: if its lanes take different branches, it executes all of
// them. The difference can be moved elsewhere: to other warps, or into data.
#include <cmath>

#include "lab/experiment.h"
#include "responses.h"

namespace fathom::lab::divergence {

Responses::Responses(const Point& at, Arena& arena)
    : load(arena.input<float>({at["n"]}, Uniform{-1, 1})),
      kind(arena.input<uint8_t>({at["n"]}, Uniform{0, kKinds})),
      out(arena.output<float>({at["n"]})) {}

Cost Responses::cost() const {
  return {.read    = load.bytes() + kind.bytes(),
          .written = out.bytes(),
          .flops   = kNodes * (2.0 * kDegree + 2) * static_cast<double>(out.extent(0))};
}

// Sums ascending powers instead of Horner's rule: a different order than the variants'.
Sum Responses::expected(int64_t i) const {
  Sum sum{.length = kDegree + kNodes + 2};
  for (int r = 0; r < kNodes; ++r) {
    const double t = load(i) * (r + 0.5) / kNodes;
    double power   = 1.0 / kNodes;
    for (int k = 0; k <= kDegree; ++k, power *= t) {
      sum.value += coefficient(kind(i), k) * power;
      sum.magnitude += std::abs(coefficient(kind(i), k) * power);
    }
  }
  return sum;
}

const Experiment<Responses> responses{
    .question = "What do four-way divergent branches cost a warp, and how can they be avoided?",
    .limit    = Limit::flops,
    .axes     = {{"n", {1 << 24}}},
    .check_at = {{"n", {0, 1, 31, 32, 33, 255, 257, 2047, 2048, 2049, 5003}}},
    .variants =
        {
            {.id         = "branch",
             .launch     = on_gpu(branch),
             .techniques = {},
             .idea       = "a switch in each thread: a warp goes through all four branches",
             .prediction = predict::share(0.21)},
            {.id         = "regrouped",
             .launch     = on_gpu(regrouped),
             .techniques = {"divergence_avoidance", "shared_memory"},
             .idea       = "a block sorts its samples by branch; the lanes of a warp agree",
             .prediction = predict::ratio(3.4)},
            {.id         = "table",
             .launch     = on_gpu(table),
             .techniques = {"divergence_avoidance", "shared_memory"},
             .idea       = "no branch: the material picks coefficients, not instructions",
             .prediction = predict::ratio(3.7)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-002"},
};
FATHOM_REGISTER(responses);

}  // namespace fathom::lab::divergence
