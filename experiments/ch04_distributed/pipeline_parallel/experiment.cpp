// A pipeline of two stages leaves one idle while the other works, until the batch is cut into micro-batches;
// what stays of the bubble depends on the order of passes.
#include "lab/experiment.h"
#include "two_stages.h"

namespace fathom::lab::pipeline_parallel {

const Experiment<TwoStages> two_stages{
    .question = "How much of a pipeline's bubble do micro-batches fill, and how much the order of passes?",
    .limit    = Limit::flops,
    .axes     = {{"micro_batches", {8}}},
    .check_at = {{"micro_batches", {1, 32}}},
    .variants =
        {
            {.id         = "whole_batch",
             .techniques = {"pipeline_parallel"},
             .idea       = "no micro-batches: one stage works at a time",
             .prediction = predict::nothing(),
             .prepare    = whole_batch},
            {.id         = "gpipe",
             .techniques = {"pipeline_parallel"},
             .idea       = "all forward passes, then all backward passes; modelled ratio 16 / 9",
             .prediction = predict::ratio(1.78),
             .prepare    = all_forward_first},
            {.id         = "one_f_one_b",
             .techniques = {"pipeline_parallel"},
             .idea       = "the same bubble with fewer activations; modelled ratio 16 / 9",
             .prediction = predict::ratio(1.78),
             .prepare    = backward_early},
            {.id         = "zero_bubble_h1",
             .techniques = {"pipeline_parallel"},
             .idea       = "weights' gradients fill the bubble; modelled ratio 48 / 25",
             .prediction = predict::ratio(1.92),
             .prepare    = weights_last},
        },
    .catalog      = {"distributed-012"},
    .ranks        = kStages,
    .shared_bytes = kWireBytes,
};
FATHOM_REGISTER(two_stages);

}  // namespace fathom::lab::pipeline_parallel
