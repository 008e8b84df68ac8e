// Token by token, an expert's weights are fetched for one row at a time. Grouped, once for all rows.
#include "variants.h"

namespace fathom::lab::grouped_experts_cpu {

const Experiment<ExpertLayer> grouped_experts{
    .question = "What is it worth to gather the tokens of an expert before it is computed?",
    .limit    = Limit::flops,
    // 512 tokens: 64 rows for an expert on average. 64 tokens: 8, and some experts have 1.
    .axes     = {{"tokens", {512, 64}}},
    .check_at = {{"tokens", {0, 1, 2, 5, 6, 7, 13, 61, 199}}},
    .variants =
        {
            {.id         = "token_by_token",
             .launch     = token_by_token,
             .techniques = {"sparse_activation"},
             .idea       = "two products of a row with a matrix for each expert of each token",
             .prediction = predict::share(0.15)},
            {.id         = "grouped",
             .launch     = grouped,
             .techniques = {"sparse_activation", "grouped_experts"},
             .idea       = "rows gathered by expert, multiplied as matrices, collected by token",
             .prediction = predict::ratio(5)},
            {.id         = "threads",
             .launch     = threads,
             .techniques = {"sparse_activation", "grouped_experts", "work_queue", "thread_parallel_loops"},
             .idea       = "grouped; threads take blocks of 48 rows from a queue",
             .prediction = predict::share_at_least(0.65),
             .threads    = kAllThreads},
        },
    .catalog = {"moe-003"},
};
FATHOM_REGISTER(grouped_experts);

}  // namespace fathom::lab::grouped_experts_cpu
