// Between the two products of an MLP lie a dozen small operations. How much of its time are they?
#include "lab/experiment.h"
#include "block.h"

namespace fathom::lab::mlp_block {

const Experiment<Block> block{
    .question = "What does fusing everything between the products of an MLP save, eager against compiled?",
    .limit    = Limit::flops,
    // 2048 tokens: intermediate results of 3.7 MB leave L2. 8: they stay.
    .axes     = {{"tokens", {2048, 8}}},
    .check_at = {{"tokens", {0, 1, 2, 7, 145}}},
    .variants =
        {
            {.id         = "eager",
             .techniques = {},
             .idea       = "a launch for each of 22 nodes, whose results go to memory",
             .prediction = {},
             .prepare    = eager},
            {.id         = "fused",
             .techniques = {"graph_capture", "compiler_fusion"},
             .idea       = "three launches: norm, product with SwiGLU, product with residual",
             .prediction = predict::ratio(1.0),
             .prepare    = fused},
            {.id         = "threads",
             .techniques = {"graph_capture", "compiler_fusion", "thread_parallel_loops"},
             .idea       = "fused, on all threads",
             .prediction = predict::ratio_at_least(1.5),
             .threads    = kAllThreads,
             .prepare    = threads},
        },
    .catalog = {"compile-008"},
};
FATHOM_REGISTER(block);

}  // namespace fathom::lab::mlp_block
