// Unrolling saves a counter, a comparison and a branch; on a GPU that matters least. A thread issues its
// instructions in order and waits where a result is used, so the loads of an iteration overlap with those of
// the next only where both stand before the first use.
#include <cmath>

#include "dot_rows.h"
#include "lab/experiment.h"

namespace fathom::lab::loop_unrolling {

DotRows::DotRows(const Point& at, Arena& arena)
    : a(arena.input<float>({at["m"], at["n"]}, Uniform{-1, 1})),
      x(arena.input<float>({at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["m"]})) {}

Cost DotRows::cost() const {
  return {
      .read = a.bytes() + x.bytes(), .written = out.bytes(), .flops = 2.0 * static_cast<double>(a.size())};
}

Sum DotRows::expected(int64_t i) const {
  double sum = 0, magnitude = 0;
  for (int64_t k = 0; k < a.extent(1); ++k) {
    const double product = static_cast<double>(a(i, k)) * x(k);
    sum += product;
    magnitude += std::abs(product);
  }
  return {.value = sum, .magnitude = magnitude, .length = a.extent(1)};
}

const Experiment<DotRows> dot_rows{
    .question = "What does unrolling a loop of loads gain, and do independent sums gain more?",
    .limit    = Limit::memory,
    // A warp for each row: more warps than fit at once, 512 MiB; and 8 warps on a multiprocessor, 16 MiB.
    .axes     = {{"m", {32768, 1024}}, {"n", {4096}}},
    .check_at = {{"m", {0, 1, 7, 9, 33}}, {"n", {0, 1, 31, 32, 33, 127, 129, 255, 256, 257, 1021, 4099}}},
    .variants =
        {
            {.id         = "rolled",
             .launch     = on_gpu(rolled),
             .techniques = {},
             .idea       = "one element of the row in flight in each thread",
             .prediction = predict::nothing()},
            {.id         = "unrolled_4",
             .launch     = on_gpu(unrolled_4),
             .techniques = {"unrolling"},
             .idea       = "four iterations in one, one sum",
             .prediction = predict::ratio_at_least(2.3)},
            {.id         = "accumulators_4",
             .launch     = on_gpu(accumulators_4),
             .techniques = {"unrolling", "instruction_level_parallelism"},
             .idea       = "four iterations in one, four sums",
             .prediction = predict::ratio_at_least(2.3)},
            {.id         = "unrolled_8",
             .launch     = on_gpu(unrolled_8),
             .techniques = {"unrolling"},
             .idea       = "eight iterations in one, one sum",
             .prediction = predict::ratio_at_least(2.5)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-003"},
};
FATHOM_REGISTER(dot_rows);

}  // namespace fathom::lab::loop_unrolling
