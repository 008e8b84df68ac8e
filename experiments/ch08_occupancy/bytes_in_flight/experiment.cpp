// Memory is busy when enough bytes are on their way: bandwidth times latency (Little's law). They can be many
// threads with one load each, or few with many. A table over both says whether only the product counts.
#include <cmath>

#include "lab/experiment.h"
#include "residual.h"

namespace fathom::lab::bytes_in_flight {

Residual::Residual(const Point& at, Arena& arena)
    : warps(at["warps"]),
      x(arena.input<bf16>({at["n"]}, Normal{})),
      y(arena.input<bf16>({at["n"]}, Normal{})),
      out(arena.output<bf16>({at["n"]})) {}

Cost Residual::cost() const {
  return {.read = x.bytes() + y.bytes(), .written = out.bytes(), .flops = static_cast<double>(out.size())};
}

Sum Residual::expected(int64_t i) const {
  const double a = static_cast<float>(x(i)), b = static_cast<float>(y(i));
  return {.value = a + b, .magnitude = std::abs(a) + std::abs(b), .length = 1};
}

const Experiment<Residual> residual{
    .question =
        "How many bytes must be in flight to saturate memory, and does it matter whether warps or unrolled "
        "loads provide them?",
    .limit    = Limit::memory,
    .axes     = {{"warps", {8, 4, 16, 32, 64}}, {"n", {int64_t{1} << 28}}},
    .check_at = {{"warps", {4, 64}}, {"n", {0, 1, 7, 8, 9, 1023, 1024, 8191, 8193, 1000003}}},
    .variants =
        {
            {.id         = "one_vector",
             .launch     = on_gpu(one_vector),
             .techniques = {"vectorization"},
             .idea       = "a vector of each stream: 32 bytes in flight for each thread",
             .prediction = predict::nothing()},
            {.id         = "two_vectors",
             .launch     = on_gpu(two_vectors),
             .techniques = {"vectorization", "instruction_level_parallelism", "unrolling"},
             .idea       = "64 bytes for each thread",
             .prediction = predict::ratio_at_least(1)},
            {.id         = "four_vectors",
             .launch     = on_gpu(four_vectors),
             .techniques = {"vectorization", "instruction_level_parallelism", "unrolling"},
             .idea       = "128 bytes for each thread",
             .prediction = predict::ratio_at_least(1)},
            {.id         = "eight_vectors",
             .launch     = on_gpu(eight_vectors),
             .techniques = {"vectorization", "instruction_level_parallelism", "unrolling",
                            "occupancy_tuning"},
             .idea       = "256 bytes for each thread, at whatever occupancy",
             .prediction = predict::share_at_least(0.85)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-004"},
};
FATHOM_REGISTER(residual);

}  // namespace fathom::lab::bytes_in_flight
