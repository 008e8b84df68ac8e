// A popular expert makes its rank late. Routers are evened out by noise, by a capacity, by a loss and by a
// bias: what does each leave of the load's variance, and of the step's time?
#include "lab/experiment.h"
#include "balanced_experts.h"

namespace fathom::lab::router_balance {

const Experiment<BalancedExperts> router_balance{
    .question =
        "Popular experts make a rank late: what do gating noise, a capacity factor of 1.25, an auxiliary "
        "loss "
        "and a selection bias leave of the load's variance, and of the time?",
    .limit    = Limit::flops,
    .axes     = {{"tokens", {512}}, {"top_k", {1, 2}}},
    .quick    = {{"top_k", {2}}},
    .check_at = {{"tokens", {0, 1, 2, 13, 61}}, {"top_k", {1, 4}}},
    .variants =
        {
            {.id         = "unbalanced",
             .techniques = {"expert_parallel"},
             .idea       = "the largest logits; the rank of popular experts works longest",
             .prediction = predict::nothing(),
             .prepare    = unbalanced},
            {.id         = "gating_noise",
             .techniques = {"expert_parallel", "load_balancing"},
             .idea       = "normal noise of deviation 1 on the logits",
             .prediction = predict::ratio(1.03),
             .prepare    = gating_noise},
            {.id         = "capacity",
             .techniques = {"expert_parallel", "load_balancing"},
             .idea       = "a capacity factor of 1.25; what does not fit is not computed",
             .prediction = predict::ratio_at_least(1.2),
             .prepare    = capacity},
            {.id         = "auxiliary_loss",
             .techniques = {"expert_parallel", "load_balancing"},
             .idea       = "router biases trained by the auxiliary loss alone",
             .prediction = predict::ratio_at_least(1.08),
             .prepare    = auxiliary_loss},
            {.id         = "loss_noise_capacity",
             .techniques = {"expert_parallel", "load_balancing"},
             .idea       = "these biases, noise, and the capacity factor",
             .prediction = predict::ratio_at_least(1.08),
             .prepare    = loss_noise_capacity},
            {.id         = "selection_bias",
             .techniques = {"expert_parallel", "load_balancing"},
             .idea       = "a bias that chooses and does not weigh, without a loss",
             .prediction = predict::ratio_at_least(1.08),
             .prepare    = selection_bias},
        },
    .catalog      = {"analysis-003", "moe-006"},
    .ranks        = kRanks,
    .shared_bytes = kRanks * moe::kOutboxBytes,
};
FATHOM_REGISTER(router_balance);

}  // namespace fathom::lab::router_balance
