// One walk waits some 700 ns for every step, and nothing shortens that. The number of walks that wait at the
// same time can be chosen, as more warps or as more loads in one thread.
#include <bit>

#include "lab/experiment.h"
#include "walk.h"

namespace fathom::lab::latency_hiding {

Walk::Walk(const Point& at, Arena& arena)
    : table(arena.input<uint32_t>({at["table"]}, Uniform{0, 4294967296.0})),
      out(arena.output<uint32_t>({at["n"]})) {
  FATHOM_EXPECT(std::has_single_bit(static_cast<uint64_t>(at["table"])),
                "the table's size must be a power of two");
}

Cost Walk::cost() const {
  return {.read = kSteps * out.bytes(), .written = out.bytes(), .loads = kSteps * out.size()};
}

int64_t Walk::expected(int64_t i) const {
  const auto walk     = static_cast<uint64_t>(i);
  const uint64_t size = static_cast<uint64_t>(table.size());
  uint64_t position   = walk * 2654435761u % size;
  for (int step = 0; step < kSteps; ++step) position = (table(static_cast<int64_t>(position)) + walk) % size;
  return static_cast<int64_t>(position);
}

const Experiment<Walk> walk{
    .question =
        "How many dependent loads must be in flight to hide memory's latency, and does it matter who issues "
        "them?",
    // The memory could deliver far more bytes than these; its rate of random accesses is no limit we know.
    .limit = Limit::none,
    // Four full rounds of 132 x 2048 walks; a table of 512 MiB.
    .axes     = {{"n", {1081344}}, {"table", {134217728}}},
    .check_at = {{"n", {0, 1, 31, 127, 129, 1023, 16895, 16897, 40009}}, {"table", {1, 4096, 1048576}}},
    .variants =
        {
            {.id         = "four_warps",
             .launch     = on_gpu(four_warps),
             .techniques = {},
             .idea = "4 warps on each multiprocessor, one walk at a time in a thread: 128 loads in flight",
             .prediction = predict::nothing()},
            {.id         = "eight_warps",
             .launch     = on_gpu(eight_warps),
             .techniques = {"latency_hiding", "occupancy_tuning"},
             .idea       = "8 warps: 256 loads in flight",
             .prediction = predict::ratio(1.9)},
            {.id         = "two_walks",
             .launch     = on_gpu(two_walks),
             .techniques = {"latency_hiding", "instruction_level_parallelism"},
             .idea       = "4 warps, 2 walks at a time: 256 loads in flight",
             .prediction = predict::ratio(1.9)},
            {.id         = "all_warps",
             .launch     = on_gpu(all_warps),
             .techniques = {"latency_hiding", "occupancy_tuning"},
             .idea       = "64 warps: 2048 loads in flight",
             .prediction = predict::ratio_at_least(2.5)},
            {.id         = "sixteen_walks",
             .launch     = on_gpu(sixteen_walks),
             .techniques = {"latency_hiding", "instruction_level_parallelism"},
             .idea       = "4 warps, 16 walks at a time: 2048 loads in flight",
             .prediction = predict::ratio_at_least(2.5)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-008"},
};
FATHOM_REGISTER(walk);

}  // namespace fathom::lab::latency_hiding
