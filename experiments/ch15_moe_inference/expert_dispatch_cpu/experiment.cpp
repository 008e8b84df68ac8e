// An expert-parallel layer sends tokens to the ranks of their experts and results back. Nobody knows
// beforehand how many go where.
#include "lab/experiment.h"
#include "dispatch.h"

namespace fathom::lab::expert_dispatch_cpu {

const Experiment<Dispatch> expert_dispatch_cpu{
    .question =
        "What do exact counts and one copy of a token for each rank save over an all-to-all of padded "
        "pieces?",
    .limit    = Limit::flops,
    .axes     = {{"tokens", {256}}, {"top_k", {2, 4}}},
    .quick    = {{"top_k", {4}}},
    .check_at = {{"tokens", {0, 1, 2, 13, 61}}, {"top_k", {1, 2, 4}}},
    .variants =
        {
            {.id         = "padded",
             .techniques = {"expert_parallel", "collectives"},
             .idea       = "an all-to-all of pieces as large as all slots of a rank",
             .prediction = predict::nothing(),
             .prepare    = padded},
            {.id         = "exact",
             .techniques = {"expert_parallel", "collectives"},
             .idea       = "counts first, then as many rows as there are",
             .prediction = predict::ratio_at_least(1.1),
             .prepare    = exact},
            {.id         = "one_copy",
             .techniques = {"expert_parallel", "collectives"},
             .idea       = "a token once for each rank, whose experts' results come back as one sum",
             .prediction = predict::ratio_at_least(1.15),
             .prepare    = one_copy},
        },
    .catalog = {"moe-004", "moe-005"},
    .ranks   = kRanks,
};
FATHOM_REGISTER(expert_dispatch_cpu);

}  // namespace fathom::lab::expert_dispatch_cpu
