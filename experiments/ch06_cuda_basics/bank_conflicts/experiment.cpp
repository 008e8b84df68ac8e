// Shared memory has 32 banks, and consecutive words lie in consecutive banks. Lanes of a warp that ask for
// different words of one bank are served one after the other: a column of a tile 32 words wide is the worst
// case, and the textbook's tile is 32 words wide.
#include <cmath>

#include "lab/experiment.h"
#include "mixing.h"

namespace fathom::lab::bank_conflicts {

Mixing::Mixing(const Point& at, Arena& arena)
    : in(arena.input<float>({at["tiles"], kSide, kSide}, Uniform{-1, 1})),
      out(arena.output<float>({at["tiles"], kSide, kSide})) {}

Cost Mixing::cost() const {
  const auto elements = static_cast<double>(in.size());
  return {.read    = in.bytes(),
          .written = out.bytes(),
          .flops   = 3 * elements * kSteps,
          .shared  = 2 * in.bytes() * kSteps};
}

// The mean of x(i, j) and x(j, i) stays; their difference shrinks by the same factor at every step.
Sum Mixing::expected(int64_t tile, int64_t i, int64_t j) const {
  const double own = in(tile, i, j), mirror = in(tile, j, i);
  const double kept = std::pow(1 - 2 * kShare, kSteps);
  return {.value     = (own + mirror) / 2 + (own - mirror) / 2 * kept,
          .magnitude = std::abs(own) + std::abs(mirror),
          .length    = 2 * kSteps};
}

const Experiment<Mixing> mixing{
    .question = "What does a 32-way bank conflict cost work in shared memory, and what is the cheapest cure?",
    .limit    = Limit::shared_memory,
    .axes     = {{"tiles", {16384}}},
    .check_at = {{"tiles", {0, 1, 2, 3, 7, 133}}},
    .variants =
        {
            {.id         = "plain",
             .launch     = on_gpu(plain),
             .techniques = {},
             .idea       = "tile[32][32]: all words of a column are in one bank",
             .prediction = predict::share(0.06)},
            {.id         = "padded",
             .launch     = on_gpu(padded),
             .techniques = {"shared_memory", "bank_conflict_avoidance"},
             .idea       = "tile[32][33]: a spare word moves each row one bank on",
             .prediction = predict::share_at_least(0.8)},
            {.id         = "swizzled",
             .launch     = on_gpu(swizzled),
             .techniques = {"shared_memory", "bank_conflict_avoidance"},
             .idea       = "column j of row i lies at j ^ i: no spare words",
             .prediction = predict::share_at_least(0.8)},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-006"},
};
FATHOM_REGISTER(mixing);

}  // namespace fathom::lab::bank_conflicts
