// cudaOccupancyMaxPotentialBlockSize answers the block size with the most resident threads. Occupancy is one
// way to have bytes in flight; the other is in the kernel, where the runtime does not look.
#include "lab/experiment.h"

#include "strided_lookup.h"

namespace fathom::lab::suggested_block_size {

StridedLookup::StridedLookup(const Point& at, Arena& arena)
    : Lookup(at, arena), loads(at["loads"]), launch(arena.output<double>({2}, Pages::small, Place::host)) {}

void StridedLookup::metrics(CallMetrics& metrics) const {
  metrics["threads_per_block"] = {launch(0), "higher"};
  metrics["blocks"]            = {launch(1), "lower"};
}

namespace {

const Experiment<StridedLookup> strided_lookup{
    .question =
        "The runtime suggests the block size with the highest occupancy. What is its answer worth, with 1 to "
        "8 loads in flight in each thread?",
    .limit    = Limit::memory,
    .axes     = {{"n", {67108864}}, {"loads", {1, 2, 4, 8}}},
    .check_at = {{"n", {0, 1, 31, 33, 255, 257, 1023, 1025, 8191, 8193, 1000003}}, {"loads", {1, 2, 4, 8}}},
    .variants =
        {
            {.id         = "threads_256",
             .techniques = {"shared_memory"},
             .idea       = "the usual block size: 24 of 64 warps are resident",
             .prediction = predict::nothing(),
             .prepare    = prepared_on_gpu(threads_256)},
            {.id         = "threads_512",
             .techniques = {"shared_memory", "block_sizing", "occupancy_tuning"},
             .idea       = "512 threads: 48 warps",
             .prediction = predict::ratio_at_least(1),
             .prepare    = prepared_on_gpu(threads_512)},
            {.id         = "suggested_threads",
             .techniques = {"shared_memory", "block_sizing", "occupancy_tuning"},
             .idea       = "cudaOccupancyMaxPotentialBlockSize chooses threads and blocks",
             .prediction = predict::ratio_at_least(1),
             .prepare    = prepared_on_gpu(suggested_threads)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-001"},
};
FATHOM_REGISTER(strided_lookup);

}  // namespace
}  // namespace fathom::lab::suggested_block_size
