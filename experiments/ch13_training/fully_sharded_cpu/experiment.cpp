// Data parallelism keeps everything on every rank, and updates all of it on every rank. ZeRO's stages cut one
// kind of it after the other into shards.
#include "lab/experiment.h"
#include "training.h"

namespace fathom::lab::fully_sharded_cpu {

const Experiment<Training> fully_sharded_cpu{
    .question =
        "What does a rank keep, what does it send, and what does a step take, as more of a model's state "
        "lies "
        "in shards?",
    .limit    = Limit::flops,
    .axes     = {{"tokens", {8, 64}}},
    .check_at = {{"tokens", {0, 1, 7}}},
    .variants =
        {
            {.id         = "ddp",
             .techniques = {"data_parallel", "collectives"},
             .idea       = "all ranks keep everything and sum all gradients",
             .prediction = predict::nothing(),
             .prepare    = ddp},
            {.id         = "zero1",
             .techniques = {"data_parallel", "fully_sharded", "collectives"},
             .idea       = "the optimizer's moments in shards",
             .prediction = predict::ratio_at_least(1.05),
             .prepare    = zero1},
            {.id         = "zero2",
             .techniques = {"data_parallel", "fully_sharded", "collectives"},
             .idea       = "gradients in shards too",
             .prediction = predict::ratio_at_least(1.05),
             .prepare    = zero2},
            {.id         = "zero3",
             .techniques = {"data_parallel", "fully_sharded", "collectives"},
             .idea       = "weights in shards too, gathered layer by layer",
             .prediction = predict::ratio(0.95),
             .prepare    = zero3},
            {.id         = "zero3_tp2",
             .techniques = {"data_parallel", "fully_sharded", "tensor_parallel", "device_mesh",
                            "collectives"},
             .idea       = "shards of two ranks, and two ranks for each layer's units",
             .prediction = predict::ratio_at_least(1.2),
             .prepare    = zero3_tp2},
        },
    .catalog = {"training-002", "training-003", "training-005"},
    .ranks   = kRanks,
};
FATHOM_REGISTER(fully_sharded_cpu);

}  // namespace fathom::lab::fully_sharded_cpu
