// Residual addition with RMSNorm reads two matrices and writes two. Done operation by operation, the sum
// crosses memory four times.
#include "lab/experiment.h"
#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_cpu {

const Experiment<RmsNorm> rmsnorm{
    .question = "How near to the speed of a copy is residual addition with RMSNorm, fused row by row?",
    .limit    = Limit::memory,
    // 2880: a row of gpt-oss. 2048 tokens: 94 MB, in DRAM. 64: 2.9 MB, in L3.
    .axes     = {{"tokens", {2048, 64}}, {"dim", {2880}}},
    .check_at = {{"tokens", {0, 1, 2, 7}}, {"dim", {1, 7, 8, 9, 31, 32, 33, 127, 2880}}},
    .variants =
        {
            {.id         = "three_pass",
             .launch     = three_pass,
             .techniques = {},
             .idea       = "add the matrices, reduce each row, scale each row",
             .prediction = predict::share(0.45)},
            {.id         = "fused",
             .launch     = fused,
             .techniques = {"kernel_fusion"},
             .idea       = "row by row: added and reduced in one walk, scaled in a second that hits L1",
             .prediction = predict::ratio(1.4)},
            {.id         = "streamed",
             .launch     = streamed,
             .techniques = {"kernel_fusion", "cache_hints"},
             .idea       = "fused, both outputs written past the caches",
             .prediction = predict::share_at_least(0.85)},
            {.id         = "pipelined",
             .launch     = pipelined,
             .techniques = {"kernel_fusion", "cache_hints", "latency_hiding"},
             .idea       = "streamed, and the next row is read while this one is written",
             .prediction = predict::share_at_least(0.9)},
            {.id         = "threads",
             .launch     = threads,
             .techniques = {"kernel_fusion", "cache_hints", "latency_hiding", "thread_parallel_loops"},
             .idea       = "pipelined, rows on all threads",
             .prediction = predict::share_at_least(0.9),
             .threads    = kAllThreads},
        },
    .group = "rmsnorm",
};
FATHOM_REGISTER(rmsnorm);

}  // namespace fathom::lab::fused_rmsnorm_cpu
