// A shared expert takes every token, so it need not wait until tokens are sorted by expert, and its product
// can fill what the routed experts' kernels leave of the GPU. How much is that, when both run on one GPU?
#include "lab/experiment.h"

#include <cmath>

#include "experiments/ch15_moe_inference/mxfp4_problem.h"
#include "moe_layer.h"

namespace fathom::lab::shared_expert_overlap {

MoeLayer::MoeLayer(const Point& at, Arena& arena)
    : GroupedExperts(at, arena),
      w1(arena.input<bf16>({2 * x.extent(1), x.extent(1)},
                           Normal{0, 1 / std::sqrt(static_cast<double>(x.extent(1)))})),
      w2(arena.input<bf16>({x.extent(1), x.extent(1)},
                           Normal{0, 1 / std::sqrt(static_cast<double>(x.extent(1)))})),
      shared_up(arena.output<bf16>({x.extent(0), 2 * x.extent(1)})),
      shared_gated(arena.output<bf16>({x.extent(0), x.extent(1)})),
      shared(arena.output<bf16>({x.extent(0), x.extent(1)})) {}

Cost MoeLayer::cost() const {
  Cost cost = GroupedExperts::cost();
  cost.read += w1.bytes() + w2.bytes();
  cost.written += shared_up.bytes() + shared_gated.bytes() + shared.bytes();
  cost.flops += 2.0 * static_cast<double>(x.extent(0)) * static_cast<double>(w1.size() + w2.size());
  return cost;
}

namespace {

Sum product(const bf16* a, const bf16* b, int64_t n) {
  Sum sum{.length = n};
  for (int64_t k = 0; k < n; ++k) {
    const double term = static_cast<double>(float(a[k])) * float(b[k]);
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}

}  // namespace

// Each step is compared given its actual input.
void MoeLayer::check(Checker& checker) const {
  GroupedExperts::check(checker);
  const int64_t width = x.extent(1);
  checker.values_in_parallel("shared_up", shared_up,
                             [&](int64_t t, int64_t n) { return product(&x(t, 0), &w1(n, 0), width); });
  checker.values_in_parallel("shared_gated", shared_gated, [&](int64_t t, int64_t u) {
    const double g = float(shared_up(t, u)), l = float(shared_up(t, width + u)),
                 value = g / (1 + std::exp(-g)) * l;
    // The exponential errs by the rounding of its argument.
    return Sum{.value = value, .magnitude = std::abs(value) * (1 + std::abs(g)), .length = 4};
  });
  checker.values_in_parallel(
      "shared", shared, [&](int64_t t, int64_t n) { return product(&shared_gated(t, 0), &w2(n, 0), width); });
}

namespace {

const std::vector<machine::Feature> kNeeds = {machine::Feature::wgmma, machine::Feature::clusters,
                                              machine::Feature::tma};

const Experiment<MoeLayer> shared_expert_overlap{
    .question =
        "A shared expert runs beside the routed ones in a second stream: what does that gain on one GPU?",
    .limit = Limit::tensor_flops,
    // 64 and 8 rows for a routed expert on average.
    .axes     = {{"tokens", {512, 64}}, {"width", {2880}}},
    .check_at = {{"tokens", {0, 1, 9, 67, 200}}, {"width", {64, 192}}},
    .variants = {{.id         = "one_stream",
                  .launch     = on_gpu(one_stream),
                  .techniques = {"sparse_activation", "grouped_experts", "tensor_cores"},
                  .idea = "the engine's ops for the routed experts, then two products for the shared one",
                  .prediction = predict::share(0.38),
                  .needs      = kNeeds},
                 {.id         = "routed_first",
                  .techniques = {"sparse_activation", "grouped_experts", "tensor_cores", "streams", "events",
                                 "moe_overlap"},
                  .idea       = "two streams, routed experts enqueued first",
                  .prediction = predict::ratio(1.06),
                  .prepare    = prepared_on_gpu(routed_first),
                  .needs      = kNeeds},
                 {.id         = "shared_first",
                  .techniques = {"sparse_activation", "grouped_experts", "tensor_cores", "streams", "events",
                                 "moe_overlap"},
                  .idea       = "two streams; the shared expert has the GPU while rows are sorted",
                  .prediction = predict::ratio(1.06),
                  .prepare    = prepared_on_gpu(shared_first),
                  .needs      = kNeeds}},
    .backend  = Backend::cuda,
    .catalog  = {"moe-010"},
    .group    = "grouped_experts",
};
FATHOM_REGISTER(shared_expert_overlap);

}  // namespace
}  // namespace fathom::lab::shared_expert_overlap
