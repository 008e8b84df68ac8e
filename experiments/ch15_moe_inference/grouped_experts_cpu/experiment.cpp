// Token by token, an expert's weights are fetched for each row. Grouped by expert, they are fetched once for
// all rows.
#include "lab/experiment.h"
#include "variants.h"

namespace fathom::lab::grouped_experts_cpu {

const Experiment<ExpertLayer> grouped_experts{
    .question = "How much faster are experts when the tokens of each are gathered first?",
    .limit    = Limit::flops,
    // 512 tokens: 64 rows for an expert on average. 64 tokens: 8, and some experts have 1.
    .axes     = {{"tokens", {512, 64}}},
    .check_at = {{"tokens", {0, 1, 2, 5, 6, 7, 13, 61, 199}}},
    .variants =
        {
            {.id         = "token_by_token",
             .launch     = token_by_token,
             .techniques = {"sparse_activation"},
             .idea       = "two vector-matrix products for each expert of each token",
             .prediction = predict::share(0.15)},
            {.id         = "grouped",
             .launch     = grouped,
             .techniques = {"sparse_activation", "grouped_experts"},
             .idea       = "gathers rows by expert, multiplies matrices, combines results by token",
             .prediction = predict::ratio(5)},
            {.id         = "threads",
             .launch     = threads,
             .techniques = {"sparse_activation", "grouped_experts", "work_queue", "thread_parallel_loops"},
             .idea       = "grouped; threads take blocks of 48 rows from a queue",
             .prediction = predict::share_at_least(0.65),
             .threads    = kAllThreads},
        },
    .catalog = {"moe-003"},
    .group   = "grouped_experts",
};
FATHOM_REGISTER(grouped_experts);

}  // namespace fathom::lab::grouped_experts_cpu
