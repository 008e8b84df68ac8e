// Two elementwise functions in a row do hardly any arithmetic for the bytes they move: each pass over the
// array runs at the speed of memory. Fused, the array crosses once.
#include "lab/experiment.h"
#include "elementwise.h"

namespace fathom::lab::fused_elementwise_cpu {

const Experiment<Elementwise> elementwise{
    .question = "What does a pass over memory cost, and what does sqrt(sin(x)) in one pass save?",
    .limit    = Limit::memory,
    // 2^24: 128 MiB, in DRAM. 2^18: 2 MiB, in L3.
    .axes     = {{"n", {1 << 24, 1 << 18}}},
    .check_at = {{"n", {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 61, 2047, 2048, 2049, 10007}}},
    .variants =
        {
            {.id         = "two_pass",
             .launch     = two_pass,
             .techniques = {},
             .idea       = "sin over the array, then sqrt over the array",
             .prediction = predict::share(0.4)},
            {.id         = "blocked",
             .launch     = blocked,
             .techniques = {"multi_level_tiling"},
             .idea       = "both passes over a block that stays in L1, then the next block",
             .prediction = predict::ratio(1.6)},
            {.id         = "fused",
             .launch     = fused,
             .techniques = {"kernel_fusion"},
             .idea       = "one pass: the sine never leaves its register",
             .prediction = predict::ratio(1.7)},
            {.id         = "streamed",
             .launch     = streamed,
             .techniques = {"kernel_fusion", "cache_hints"},
             .idea       = "one pass, and the result is written past the caches",
             .prediction = predict::share_at_least(0.85)},
            {.id         = "prefetched",
             .launch     = prefetched,
             .techniques = {"kernel_fusion", "cache_hints", "software_prefetch"},
             .idea       = "streamed, and each line is prefetched 4 KiB ahead",
             .prediction = predict::share_at_least(0.9)},
            {.id         = "threads",
             .launch     = threads,
             .techniques = {"kernel_fusion", "cache_hints", "software_prefetch", "thread_parallel_loops"},
             .idea       = "prefetched on all threads",
             .prediction = predict::share_at_least(0.9),
             .threads    = kAllThreads},
        },
    .catalog = {"tiling-007"},
    .group   = "elementwise",
};
FATHOM_REGISTER(elementwise);

}  // namespace fathom::lab::fused_elementwise_cpu
