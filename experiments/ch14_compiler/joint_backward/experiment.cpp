// A backward pass reads what the forward pass computed. What is gained where one compiler sees both?
#include "lab/experiment.h"
#include "gated_norm.h"

namespace fathom::lab::joint_backward {

const Experiment<GatedNorm> joint_backward{
    .question =
        "What does a joint forward and backward graph save, against eager and against a compiled "
        "forward with an eager backward?",
    .limit = Limit::memory,
    // 2048 rows: each tensor is 16.8 MB. 32: 0.26 MB.
    .axes     = {{"tokens", {2048, 32}}},
    .check_at = {{"tokens", {0, 1, 2, 7, 145}}},
    .variants =
        {
            {.id         = "eager",
             .techniques = {},
             .idea       = "a launch for each node of both halves, whose results go to memory",
             .prediction = {},
             .prepare    = eager},
            {.id         = "compiled_forward",
             .techniques = {"graph_capture", "compiler_fusion"},
             .idea       = "the forward half is fused; the backward half is eager and reads what it stored",
             .prediction = predict::ratio_at_least(1.1),
             .prepare    = compiled_forward},
            {.id         = "joint",
             .techniques = {"graph_capture", "compiler_fusion", "compiled_autograd"},
             .idea       = "one graph of both halves, fused together",
             .prediction = predict::ratio_at_least(2),
             .prepare    = joint},
            {.id         = "threads",
             .techniques = {"graph_capture", "compiler_fusion", "compiled_autograd", "thread_parallel_loops"},
             .idea       = "joint, on all threads",
             .prediction = predict::ratio_at_least(3),
             .threads    = kAllThreads,
             .prepare    = threads},
        },
    .catalog = {"compile-005", "compile-015"},
};
FATHOM_REGISTER(joint_backward);

}  // namespace fathom::lab::joint_backward
