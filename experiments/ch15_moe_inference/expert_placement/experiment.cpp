// With expert parallelism a layer takes as long as its most loaded rank. Routers favour some experts, so
// where experts lie decides how long that is.
#include "lab/experiment.h"
#include "placed_experts.h"

namespace fathom::lab::expert_placement {

const Experiment<PlacedExperts> placement{
    .question =
        "Routers favour some experts: how much of a step does a placement by load save, and how much do "
        "replicas of hot experts?",
    .limit    = Limit::flops,
    .axes     = {{"tokens", {512}}, {"slope", {1.0, 1.5, 2.0}}},
    .quick    = {{"slope", {2.0}}},
    .check_at = {{"tokens", {0, 1, 2, 13, 61}}, {"slope", {0.0, 2.0}}},
    .variants =
        {
            {.id         = "round_robin",
             .techniques = {"expert_parallel"},
             .idea       = "expert e on rank e mod 2",
             .prediction = predict::nothing(),
             .prepare    = round_robin},
            {.id         = "eplb",
             .techniques = {"expert_parallel", "load_balancing"},
             .idea       = "8 experts on each rank, packed by the load of an earlier step",
             .prediction = predict::ratio_at_least(1.15),
             .prepare    = eplb},
            {.id         = "eplb_replicas",
             .techniques = {"expert_parallel", "load_balancing", "expert_replication"},
             .idea       = "the hottest experts on both ranks, which share their tokens",
             .prediction = predict::ratio_at_least(1.18),
             .prepare    = eplb_replicas},
        },
    .catalog      = {"moe-004", "moe-008"},
    .ranks        = kRanks,
    .shared_bytes = kRanks * moe::kOutboxBytes,
};
FATHOM_REGISTER(placement);

}  // namespace fathom::lab::expert_placement
