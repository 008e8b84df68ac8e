// Unrolling saves a counter, a comparison and a branch; on a GPU that matters least. A thread issues its
// instructions in order and waits where a result is used, so the loads of an iteration overlap with those of
// the next only where both stand before the first use. nvcc unrolls by itself; what remains for the author?
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
    .question = "What is nvcc's own unrolling of a loop of loads worth, and does the author's gain more?",
    .limit    = Limit::memory,
    // A warp for each row: more warps than fit at once, 512 MiB; and 8 warps on a multiprocessor, 16 MiB.
    .axes     = {{"m", {32768, 1024}}, {"n", {4096}}},
    .check_at = {{"m", {0, 1, 7, 9, 33}}, {"n", {0, 1, 31, 32, 33, 127, 129, 255, 256, 257, 1021, 4099}}},
    .variants =
        {
            {.id         = "plain",
             .launch     = on_gpu(plain),
             .techniques = {},
             .idea       = "the loop as written, which nvcc unrolls by itself; one sum",
             .prediction = predict::share_at_least(0.9)},
            {.id         = "rolled",
             .launch     = on_gpu(rolled),
             .techniques = {},
             .idea       = "unrolling forbidden: one element of the row in flight in each thread",
             .prediction = predict::ratio(0.58)},
            {.id         = "unrolled_4",
             .launch     = on_gpu(unrolled_4),
             .techniques = {"unrolling"},
             .idea       = "exactly four iterations in one, one sum",
             .prediction = predict::ratio(1)},
            {.id         = "accumulators_4",
             .launch     = on_gpu(accumulators_4),
             .techniques = {"unrolling", "instruction_level_parallelism"},
             .idea       = "four iterations in one, four sums",
             .prediction = predict::ratio(1)},
            {.id         = "unrolled_8",
             .launch     = on_gpu(unrolled_8),
             .techniques = {"unrolling"},
             .idea       = "eight iterations in one, one sum",
             .prediction = predict::ratio(1.03)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-003"},
};
FATHOM_REGISTER(dot_rows);

}  // namespace fathom::lab::loop_unrolling
