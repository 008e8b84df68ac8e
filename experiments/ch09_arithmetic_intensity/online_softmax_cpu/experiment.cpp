// Softmax needs the maximum before the sum and the sum before the result: three walks over a row, by the
// definition. Correcting the sum when the maximum grows makes it two. Is a second exponential cheaper than a
// third walk?
#include "lab/experiment.h"
#include "softmax.h"

namespace fathom::lab::online_softmax_cpu {

const Experiment<Softmax> softmax{
    .question = "What does a softmax gain when maximum and sum are found in one walk over the row?",
    .limit    = Limit::memory,
    // 201088: the vocabulary of gpt-oss, 0.8 MB a row, more than L2. 4096: a row in L1, with out in L2.
    .axes     = {{"cols", {201088, 4096}}, {"rows", {32}}},
    .check_at = {{"cols", {1, 2, 7, 8, 9, 15, 16, 17, 61, 1023, 1024, 1025, 10007}}, {"rows", {0, 1, 3}}},
    .variants =
        {
            {.id         = "three_pass",
             .launch     = three_pass,
             .techniques = {},
             .idea       = "maximum; exponentials and their sum; scale",
             .prediction = predict::share(0.4)},
            {.id         = "online",
             .launch     = online,
             .techniques = {"online_softmax"},
             .idea       = "maximum and sum in one walk; exponentials again in the second",
             .prediction = predict::ratio(1.1)},
            {.id         = "kept",
             .launch     = kept,
             .techniques = {"online_softmax", "multi_level_tiling"},
             .idea = "the first walk's exponentials are kept, and corrected block by block in the second",
             .prediction = predict::ratio(1.15)},
            {.id         = "threads",
             .launch     = threads,
             .techniques = {"online_softmax", "multi_level_tiling", "thread_parallel_loops"},
             .idea       = "kept, rows on all threads",
             .prediction = predict::share_at_least(0.8),
             .threads    = kAllThreads},
            {.id         = "onednn",
             .idea       = "dnnl_softmax on one thread",
             .prediction = predict::ratio(1.2),
             .kind       = Kind::library,
             .prepare    = onednn_softmax,
             .library    = "libdnnl.so.2"},
        },
    .catalog = {"attention-002"},
    .group   = "softmax",
};
FATHOM_REGISTER(softmax);

}  // namespace fathom::lab::online_softmax_cpu
