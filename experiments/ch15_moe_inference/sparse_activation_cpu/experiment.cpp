// A Mixture-of-Experts layer has the parameters of all its experts and needs the work of a few of them. Does
// the time fall as much as the work?
#include "lab/experiment.h"
#include "variants.h"

namespace fathom::lab::sparse_activation_cpu {

const Experiment<ExpertLayer> sparse_activation{
    .question =
        "With 2 of 16 experts active a layer needs an eighth of the work: does it take an eighth of the "
        "time?",
    .limit = Limit::flops,
    // 512 tokens: 64 rows for an expert on average. 64 tokens: 8.
    .axes     = {{"tokens", {512, 64}}},
    .check_at = {{"tokens", {0, 1, 2, 5, 6, 7, 13, 61}}},
    .variants =
        {
            {.id         = "dense",
             .launch     = dense,
             .techniques = {},
             .idea       = "all experts on all tokens; gates of experts that were not chosen are 0",
             .prediction = predict::share(0.1)},
            {.id         = "routed",
             .launch     = routed,
             .techniques = {"sparse_activation"},
             .idea       = "chosen experts only, token by token",
             .prediction = predict::ratio(1.5)},
            {.id         = "routed_grouped",
             .launch     = routed_grouped,
             .techniques = {"sparse_activation", "grouped_experts"},
             .idea       = "chosen experts only, each on all of its tokens",
             .prediction = predict::ratio_at_least(6.5)},
        },
    .catalog = {"moe-001", "moe-003"},
};
FATHOM_REGISTER(sparse_activation);

}  // namespace fathom::lab::sparse_activation_cpu
