// A framework runs a program line by line, and every line reads and writes its tensors. A compiler that has
// seen the whole program keeps what only the next line needs.
#include "lab/experiment.h"
#include "chain.h"

namespace fathom::lab::fused_chain {

const Experiment<Chain> chain{
    .question =
        "Which bytes vanish when a compiler fuses a chain of tensor operations, and how near does it come to "
        "a hand-written loop?",
    .limit = Limit::memory,
    // 2880: a row of gpt-oss. 2048 tokens: 94 MB, in DRAM. 64: 2.9 MB, in L3.
    .axes     = {{"tokens", {2048, 64}}, {"dim", {2880}}},
    .check_at = {{"tokens", {0, 1, 2, 7}}, {"dim", {1, 7, 8, 31, 33, 127, 1023, 1024, 1025, 2880}}},
    .variants =
        {
            {.id         = "eager",
             .techniques = {},
             .idea       = "a launch for each of ten nodes, whose results go to memory",
             .prediction = predict::share(0.18),
             .prepare    = eager},
            {.id         = "fused",
             .techniques = {"graph_capture", "compiler_fusion"},
             .idea       = "one launch: the same kernels over a row at a time, in L1",
             .prediction = predict::ratio(2.5),
             .prepare    = fused},
            {.id         = "hand_written",
             .launch     = hand_written,
             .techniques = {"kernel_fusion"},
             .idea       = "the yardstick: two loops over a row, numbers in registers",
             .prediction = predict::ratio(2.8)},
            {.id         = "threads",
             .techniques = {"graph_capture", "compiler_fusion", "thread_parallel_loops"},
             .idea       = "fused, rows on all threads",
             .prediction = predict::share_at_least(0.7),
             .threads    = kAllThreads,
             .prepare    = threads},
        },
    .catalog = {"compile-007"},
    .group   = "rmsnorm",
};
FATHOM_REGISTER(chain);

}  // namespace fathom::lab::fused_chain
