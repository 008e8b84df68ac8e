// A capacity bounds what the hottest expert may be sent, and so how long the slowest rank works. What does
// not fit must go somewhere, or nowhere.
#include "lab/experiment.h"
#include "capped_experts.h"

namespace fathom::lab::capacity_factor {

const Experiment<CappedExperts> capacity_factor{
    .question =
        "What does a capacity factor save in time, and what does it cost in dropped tokens and in error?",
    .limit    = Limit::flops,
    .axes     = {{"tokens", {512}}, {"top_k", {1, 2, 4}}, {"capacity_factor", {1.0, 2.0}}},
    .quick    = {{"top_k", {2}}, {"capacity_factor", {1.0}}},
    .check_at = {{"tokens", {0, 1, 2, 13, 61}}, {"top_k", {1, 4}}, {"capacity_factor", {1.0, 1.25}}},
    .variants =
        {
            {.id         = "unlimited",
             .launch     = unlimited,
             .techniques = {"expert_parallel"},
             .idea       = "no capacity: the rank of hot experts works longest",
             .prediction = predict::nothing()},
            {.id         = "drop",
             .launch     = drop,
             .techniques = {"expert_parallel", "load_balancing"},
             .idea       = "what does not fit is not computed",
             .prediction = predict::ratio_at_least(1.05)},
            {.id         = "next_choice",
             .launch     = next_choice,
             .techniques = {"expert_parallel", "load_balancing"},
             .idea       = "what does not fit goes to the token's next choice that has room",
             .prediction = predict::ratio_at_least(1.0)},
        },
    .catalog      = {"analysis-003", "moe-007", "moe-013"},
    .ranks        = kRanks,
    .shared_bytes = kRanks * moe::kOutboxBytes,
};
FATHOM_REGISTER(capacity_factor);

}  // namespace fathom::lab::capacity_factor
