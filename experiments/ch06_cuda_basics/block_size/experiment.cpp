// A block occupies its multiprocessor until its last warp ends, and a multiprocessor has 64 warp slots but
// only 32 block slots. The largest blocks meet the first rule, the smallest the second.
#include <cmath>

#include "lab/experiment.h"
#include "triad.h"

namespace fathom::lab::block_size {

Triad::Triad(const Point& at, Arena& arena)
    : x(arena.input<float>({at["n"]}, Uniform{-1, 1})),
      y(arena.input<float>({at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"]})) {}

Cost Triad::cost() const {
  return {
      .read = x.bytes() + y.bytes(), .written = out.bytes(), .flops = 2 * static_cast<double>(out.extent(0))};
}

Sum Triad::expected(int64_t i) const {
  const double scaled = static_cast<double>(kScale) * x(i);
  return {.value = scaled + y(i), .magnitude = std::abs(scaled) + std::abs(y(i)), .length = 1};
}

const Experiment<Triad> triad{
    .question = "How many threads should a block of an elementwise kernel have?",
    .limit    = Limit::memory,
    .axes     = {{"n", {1 << 26}}},
    .check_at = {{"n", {0, 1, 31, 32, 33, 127, 129, 1023, 1024, 1025, 5003}}},
    .variants =
        {
            {.id         = "threads_256",
             .launch     = on_gpu(threads_256),
             .techniques = {},
             .idea       = "8 blocks fill the 64 warp slots of a multiprocessor",
             .prediction = predict::share(0.9)},
            {.id         = "threads_32",
             .launch     = on_gpu(threads_32),
             .techniques = {"block_sizing"},
             .idea       = "one warp a block: 32 block slots leave half of the warp slots empty",
             .prediction = predict::ratio(0.5)},
            {.id         = "threads_64",
             .launch     = on_gpu(threads_64),
             .techniques = {"block_sizing"},
             .idea       = "32 blocks just fill a multiprocessor",
             .prediction = predict::ratio(0.95)},
            {.id         = "threads_128",
             .launch     = on_gpu(threads_128),
             .techniques = {"block_sizing"},
             .idea       = "16 blocks a multiprocessor",
             .prediction = predict::ratio(1)},
            {.id         = "threads_512",
             .launch     = on_gpu(threads_512),
             .techniques = {"block_sizing"},
             .idea       = "4 blocks a multiprocessor",
             .prediction = predict::ratio(1)},
            {.id         = "threads_1024",
             .launch     = on_gpu(threads_1024),
             .techniques = {"block_sizing"},
             .idea       = "two blocks: half of the warp slots wait for the slowest of 32 warps",
             .prediction = predict::ratio(0.9)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-001"},
};
FATHOM_REGISTER(triad);

}  // namespace fathom::lab::block_size
