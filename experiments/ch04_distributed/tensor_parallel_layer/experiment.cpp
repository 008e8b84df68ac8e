// A layer's weights in parts need a collective. Which, and how many, depends on how they are cut: by outputs
// twice, or by outputs and then by inputs.
#include "lab/experiment.h"
#include "mlp.h"

namespace fathom::lab::tensor_parallel_layer {

const Experiment<Mlp> tensor_parallel_layer{
    .question = "What do two ranks gain on an MLP, and what does it save to cut its second matrix by inputs?",
    .limit    = Limit::memory,
    .axes     = {{"tokens", {1, kTokens}}},
    .check_at = {{"tokens", {0, 1, 7}}},
    .variants =
        {
            {.id         = "one_rank",
             .launch     = one_rank,
             .techniques = {"collectives"},
             .idea       = "rank 0 computes the layer and tells the other, which waits",
             .prediction = predict::nothing()},
            {.id         = "gather_each",
             .launch     = gather_each,
             .techniques = {"tensor_parallel"},
             .idea       = "both matrices by outputs: two gathers",
             .prediction = predict::ratio_at_least(1.3)},
            {.id         = "column_then_row",
             .launch     = column_then_row,
             .techniques = {"tensor_parallel"},
             .idea       = "the second matrix by inputs: one all-reduce, hidden activations stay",
             .prediction = predict::ratio_at_least(1.3)},
        },
    .catalog      = {"distributed-011"},
    .ranks        = kRanks,
    .shared_bytes = kRanks * kOutboxBytes,
};
FATHOM_REGISTER(tensor_parallel_layer);

}  // namespace fathom::lab::tensor_parallel_layer
