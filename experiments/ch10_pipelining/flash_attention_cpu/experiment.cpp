// The formula of attention writes and reads T^2 scores for T outputs. What does a CPU gain when it never
// stores them?
#include "lab/experiment.h"
#include "attention.h"

namespace fathom::lab::flash_attention_cpu {

const Experiment<Attention> attention{
    .question =
        "What does attention gain on a CPU when scores stay in the caches, and when whole rows of scores "
        "never exist?",
    .limit = Limit::flops,
    // Scores of 1024 tokens: 4 MB, in L3. Of 4096: 67 MB, in DRAM.
    .axes = {{"tokens", {1024, 4096}}},
    // Sizes around register tiles (6 x 16), tiles of scores (96 x 128), and both.
    .check_at = {{"tokens", {0, 1, 5, 7, 15, 16, 17, 61, 95, 97, 127, 128, 129, 193, 257}}},
    .variants =
        {
            {.id         = "scores_in_memory",
             .launch     = scores_in_memory,
             .techniques = {},
             .idea       = "the formula: all scores, the softmax of all rows, the product with v",
             .prediction = predict::share(0.4)},
            {.id         = "row_blocks",
             .launch     = row_blocks,
             .techniques = {"multi_level_tiling", "kernel_fusion"},
             .idea       = "the same steps for 96 queries at a time: whole rows of scores, in L2",
             .prediction = predict::ratio(1.3)},
            {.id         = "flash",
             .launch     = flash,
             .techniques = {"multi_level_tiling", "kernel_fusion", "online_softmax", "flash_attention"},
             .idea       = "tiles of 96 x 128 scores, softmax rescaled as they pass (online softmax)",
             .prediction = predict::share_at_least(0.7)},
            {.id         = "threads",
             .launch     = threads,
             .techniques = {"multi_level_tiling", "kernel_fusion", "online_softmax", "flash_attention",
                            "thread_parallel_loops"},
             .idea       = "flash, queries on all threads",
             .prediction = predict::share_at_least(0.65),
             .threads    = kAllThreads},
        },
    .catalog = {"attention-001"},
    .group   = "attention",
};
FATHOM_REGISTER(attention);

}  // namespace fathom::lab::flash_attention_cpu
