// A row of 50304 numbers takes all shared memory of a multiprocessor, a longer one takes that of several.
// What does it cost when the blocks of a cluster reduce it together, and what without clusters?
#include "lab/experiment.h"

#include "experiments/ch10_pipelining/rms_norm_problem.h"
#include "split_rows.h"

namespace fathom::lab::cluster_reduction {

SplitRows::SplitRows(const Point& at, Arena& arena)
    : RmsNorm(at, arena), cluster(at["cluster"]), partial(arena.workspace<float>({at["rows"], cluster})) {
  FATHOM_EXPECT(cluster >= 1 && cluster <= kMaxBlocks && (cluster & (cluster - 1)) == 0,
                "a cluster has 1, 2, 4 or 8 blocks");
  FATHOM_EXPECT(slice() <= kMaxSlice,
                "a slice is larger than a block's shared memory: give a row more blocks, or make it shorter");
}

namespace {

const Experiment<SplitRows> split_rows{
    .question =
        "What do blocks of a cluster gain that reduce a row together in their shared memory, over blocks "
        "that meet in global memory?",
    .limit = Limit::memory,
    // 50304: the vocabulary of GPT-2, padded. 10 rows for each of 132 multiprocessors, 531 MB.
    .axes = {{"cluster", {8, 4, 2, 1}}, {"width", {50304}}, {"rows", {1320}}},
    // Slices of one vector, of a length that is no multiple of the threads, and empty ones.
    .check_at = {{"cluster", {1, 2, 4, 8}},
                 {"width", {4, 8, 28, 32, 36, 4100, 50304}},
                 {"rows", {0, 1, 3, 37}}},
    .variants = {{.id         = "two_kernels",
                  .launch     = on_gpu(two_kernels),
                  .techniques = {},
                  .idea       = "the sum of each slice goes to memory; a second kernel reads the row again",
                  .prediction = predict::share(0.65)},
                 {.id         = "through_global",
                  .launch     = on_gpu(through_global),
                  .techniques = {"clusters", "tma_pipeline"},
                  .idea       = "a cluster holds the row in shared memory, sums go through global memory",
                  .prediction = predict::ratio(1.3),
                  .needs      = {machine::Feature::tma, machine::Feature::clusters}},
                 {.id         = "through_dsmem",
                  .launch     = on_gpu(through_dsmem),
                  .techniques = {"clusters", "tma_pipeline", "dsmem"},
                  .idea       = "each block reads the sums of the others from their shared memory",
                  .prediction = predict::ratio(1.35),
                  .needs      = {machine::Feature::tma, machine::Feature::clusters}},
                 {.id         = "dsmem_broadcast",
                  .launch     = on_gpu(dsmem_broadcast),
                  .techniques = {"clusters", "tma_pipeline", "dsmem"},
                  .idea       = "block 0 adds the sums and stores the result in each block",
                  .prediction = predict::ratio(1.35),
                  .needs      = {machine::Feature::tma, machine::Feature::clusters}}},
    .backend  = Backend::cuda,
    .catalog  = {"pipeline-015", "pipeline-017"},
};
FATHOM_REGISTER(split_rows);

}  // namespace
}  // namespace fathom::lab::cluster_reduction
