// An FMA has a latency of 4 cycles, and a scheduler can start one in every cycle. The other three must come
// from other warps, as the textbooks say, or from the same thread (V. Volkov, Better Performance at Lower
// Occupancy, GTC 2010).
#include <cmath>

#include "lab/experiment.h"
#include "recurrence.h"

namespace fathom::lab::extreme_ilp {

Recurrence::Recurrence(const Point& at, Arena& arena)
    : a(arena.input<float>({at["n"]}, Uniform{0.9995, 0.9999})),
      b(arena.input<float>({at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"]})) {}

Cost Recurrence::cost() const {
  return {.read    = a.bytes() + b.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * kSteps * static_cast<double>(out.size())};
}

// The geometric series in closed form. All its terms have the sign of b.
Sum Recurrence::expected(int64_t i) const {
  const double factor = a(i), value = b(i) * (1 - std::pow(factor, kSteps + 1)) / (1 - factor);
  return {.value = value, .magnitude = std::abs(value), .length = kSteps};
}

const Experiment<Recurrence> recurrence{
    .question = "How many independent FMAs must a thread have when each scheduler has only one warp?",
    // FMAs of three different registers stop below the FMA peak, and no control measures where (notes.md).
    .limit = Limit::none,
    // Two full rounds of 132 x 128 threads with 16 chains each.
    .axes     = {{"n", {540672}}},
    .check_at = {{"n", {0, 1, 31, 127, 129, 1021, 16895, 16897, 40009}}},
    .variants =
        {
            {.id         = "one_chain",
             .launch     = on_gpu(one_chain),
             .techniques = {},
             .idea       = "4 warps on each multiprocessor, each FMA waits for the one before",
             .prediction = predict::nothing()},
            {.id         = "two_chains",
             .launch     = on_gpu(two_chains),
             .techniques = {"instruction_level_parallelism"},
             .idea       = "4 warps, two recurrences side by side in a thread",
             .prediction = predict::ratio(1.6)},
            {.id         = "four_chains",
             .launch     = on_gpu(four_chains),
             .techniques = {"instruction_level_parallelism"},
             .idea       = "4 warps, four: the latency of an FMA",
             .prediction = predict::ratio(2.5)},
            {.id         = "eight_chains",
             .launch     = on_gpu(eight_chains),
             .techniques = {"instruction_level_parallelism"},
             .idea       = "4 warps, eight: some to spare",
             .prediction = predict::ratio(2.6)},
            {.id         = "sixteen_chains",
             .launch     = on_gpu(sixteen_chains),
             .techniques = {"instruction_level_parallelism"},
             .idea       = "4 warps, sixteen",
             .prediction = predict::ratio(2.6)},
            {.id         = "all_warps",
             .launch     = on_gpu(all_warps),
             .techniques = {"latency_hiding", "occupancy_tuning"},
             .idea       = "64 warps, one recurrence at a time in a thread",
             .prediction = predict::ratio(2.1)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-003", "occupancy-004"},
};
FATHOM_REGISTER(recurrence);

}  // namespace fathom::lab::extreme_ilp
