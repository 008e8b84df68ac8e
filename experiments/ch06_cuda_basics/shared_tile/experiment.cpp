// Each number of the input is wanted by 25 points. DRAM need not care, since caches answer 24 of the 25
// times; but then the cache becomes the limit, and the question is who answers faster: L1, shared memory, or
// the registers.
#include <cmath>

#include "lab/experiment.h"
#include "stencil.h"

namespace fathom::lab::shared_tile {

Stencil::Stencil(const Point& at, Arena& arena)
    : in(arena.input<float>({at["n"] + kRim, at["n"] + kRim}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"], at["n"]})) {}

Cost Stencil::cost() const {
  return {.read    = in.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * kTaps * kTaps * static_cast<double>(out.size())};
}

Sum Stencil::expected(int64_t i, int64_t j) const {
  Sum sum{.length = kTaps * kTaps};
  for (int a = 0; a < kTaps; ++a)
    for (int b = 0; b < kTaps; ++b) {
      const double term = static_cast<double>(weight(a, b)) * in(i + a, j + b);
      sum.value += term;
      sum.magnitude += std::abs(term);
    }
  return sum;
}

const Experiment<Stencil> stencil{
    .question = "What does a tile in shared memory gain a 5 x 5 stencil over reading through the L1 cache?",
    .limit    = Limit::memory,
    .axes     = {{"n", {8192}}},
    .check_at = {{"n", {0, 1, 2, 7, 8, 9, 31, 32, 33, 61, 63, 64, 65, 67, 127}}},
    .variants =
        {
            {.id         = "global",
             .launch     = on_gpu(global),
             .techniques = {},
             .idea       = "a point a thread, 25 loads through L1",
             .prediction = predict::share(0.3)},
            {.id         = "tile",
             .launch     = on_gpu(tile),
             .techniques = {"shared_memory"},
             .idea       = "a point a thread, 25 loads from a tile in shared memory",
             .prediction = predict::ratio(1.3)},
            {.id         = "global_column",
             .launch     = on_gpu(global_column),
             .techniques = {"memory_hierarchy"},
             .idea       = "eight points a thread share numbers in registers: 7.5 loads a point, through L1",
             .prediction = predict::ratio(2.5)},
            {.id         = "tile_column",
             .launch     = on_gpu(tile_column),
             .techniques = {"shared_memory", "memory_hierarchy"},
             .idea       = "both: 7.5 loads a point, from the tile",
             .prediction = predict::share_at_least(0.75)},
        },
    .backend = Backend::cuda,
    .catalog = {"tiling-001"},
};
FATHOM_REGISTER(stencil);

}  // namespace fathom::lab::shared_tile
