// A compiler's constants were chosen on one machine for one program. What is lost by not asking this one?
#include "lab/experiment.h"
#include "tuned_layer.h"

namespace fathom::lab::autotune {

// Predictions, with two threads: the default's constants were chosen for such layers, and a block in L1 or a
// chunk in L2 is as fast as another that fits. What is left is the fork and join of the norm, a few
// microseconds of some fifty with 8 tokens.
const Experiment<Layer> layer{
    .question =
        "What does it save to search for the schedules of a layer's launches, against a rule and against "
        "constants?",
    .limit    = Limit::flops,
    .axes     = {{"tokens", {8, 512}}},
    .check_at = {{"tokens", {0, 1, 2, 7, 145}}},
    .variants =
        {
            {.id         = "default_schedule",
             .techniques = {"graph_capture", "compiler_fusion", "thread_parallel_loops"},
             .idea       = "blocks of 4 KiB, chunks of 256 KiB, all threads",
             .prediction = {},
             .threads    = kAllThreads,
             .prepare    = default_schedule},
            {.id         = "rule",
             .techniques = {"graph_capture", "compiler_fusion", "thread_parallel_loops"},
             .idea       = "half of L1, half of L2, threads where the work outweighs a fork",
             .prediction = predict::ratio(1.0),
             .threads    = kAllThreads,
             .prepare    = rule},
            {.id         = "searched",
             .techniques = {"graph_capture", "compiler_fusion", "autotuning", "thread_parallel_loops"},
             .idea       = "every candidate timed, each launch keeps its fastest: max-autotune",
             .prediction = predict::ratio(1.05),
             .threads    = kAllThreads,
             .prepare    = searched},
            {.id         = "cached",
             .techniques = {"graph_capture", "compiler_fusion", "autotuning", "thread_parallel_loops"},
             .idea       = "what an earlier search found, read from a file",
             .prediction = predict::ratio(1.05),
             .threads    = kAllThreads,
             .prepare    = cached},
        },
    .catalog = {"compile-009", "compile-017"},
};
FATHOM_REGISTER(layer);

}  // namespace fathom::lab::autotune
