// Small urgent kernels beside a flood of bulk work: what keeps them off the critical path, a stream of their
// own or its priority?
#include "lab/experiment.h"

#include <cmath>

#include "experiments/ch11_streams/leaky_integrator.h"
#include "flood.h"

namespace fathom::lab::stream_priorities {

Flood::Flood(const Point& at, Arena& arena)
    : steps(at["steps"]),
      chain_steps(at["chain_steps"]),
      flood_in(arena.input<float>({kFloodKernels, at["n"]}, Uniform{-1, 1})),
      flood_out(arena.output<float>({kFloodKernels, at["n"]})),
      chain_in(arena.input<float>({at["m"]}, Uniform{-1, 1})),
      chain_out(arena.output<float>({at["m"]})),
      link(arena.workspace<float>({2, at["m"]})) {
  FATHOM_EXPECT(steps <= INT32_MAX && chain_steps <= INT32_MAX, "the kernel counts steps in 32 bits");
}

Cost Flood::cost() const {
  return {.read    = flood_in.bytes() + chain_in.bytes(),
          .written = flood_out.bytes() + chain_out.bytes(),
          .flops   = leaky_integrator::flops(flood_in.size(), steps) +
                   kChainKernels * leaky_integrator::flops(chain_in.size(), chain_steps)};
}

void Flood::check(Checker& checker) const {
  const double gain = leaky_integrator::gain(steps);
  checker.values("flood_out", flood_out, [&](int64_t k, int64_t i) {
    const double y = flood_in(k, i) * gain;
    return Sum{.value = y, .magnitude = std::abs(y), .length = leaky_integrator::kRoundings};
  });
  const double chain_gain = std::pow(leaky_integrator::gain(chain_steps), kChainKernels);
  checker.values("chain_out", chain_out, [&](int64_t i) {
    const double y = chain_in(i) * chain_gain;
    return Sum{.value = y, .magnitude = std::abs(y), .length = kChainKernels * leaky_integrator::kRoundings};
  });
}

namespace {

const Experiment<Flood> flood{
    .question =
        "Small urgent kernels depend on each other, beside bulk work that fills the GPU: when does "
        "the bulk hide them?",
    .limit    = Limit::flops,
    .axes     = {{"n", {1 << 23}}, {"steps", {512}}, {"m", {4096}}, {"chain_steps", {64}}},
    .check_at = {{"n", {0, 1, 1023, 1025, 300001}},
                 {"steps", {1, 40}},
                 {"m", {0, 1, 1024, 1025}},
                 {"chain_steps", {1, 2}}},
    .variants =
        {
            {.id         = "one_stream",
             .launch     = on_gpu(one_stream),
             .techniques = {},
             .idea       = "the urgent kernels behind the bulk",
             .prediction = predict::share(0.7)},
            {.id         = "equal_priority",
             .techniques = {"streams", "events"},
             .idea       = "the urgent kernels in a stream of their own",
             .prediction = predict::ratio(1.05),
             .prepare    = prepared_on_gpu(equal_priority)},
            {.id         = "high_priority",
             .techniques = {"streams", "events", "stream_priorities"},
             .idea       = "that stream has a high priority",
             .prediction = predict::ratio_at_least(1.25),
             .prepare    = prepared_on_gpu(high_priority)},
        },
    .backend = Backend::cuda,
    .catalog = {"streams-006"},
};
FATHOM_REGISTER(flood);

}  // namespace
}  // namespace fathom::lab::stream_priorities
