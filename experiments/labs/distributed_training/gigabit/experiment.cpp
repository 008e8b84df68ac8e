// The same step over a link of 125 MB/s each way: the kernel paces the sockets, so that a message takes time
// and, for most of it, no core. The link is emulated; the time is measured.
//
// Predicted: 7.5 ms of computation and 8.4 ms for the gradients of ddp, of which buckets hide what the
// backward pass is long; sharding without prefetch sends 1.44 times as much; fp8 a quarter of that, which
// prefetch hides whole (the arithmetic is in notes.md).
#include "lab/experiment.h"

#include "experiments/labs/distributed_training/training_step/training.h"

namespace fathom::lab::distributed_training {
namespace {

const Experiment<Training> gigabit{
    .question =
        "On a link as slow as Gigabit Ethernet (emulated: paced sockets), how much of a training step's "
        "exchange hides behind its computation?",
    .limit    = Limit::flops,
    .axes     = {{"tokens", {64}}, {"link_mb_s", {125}}},
    .check_at = {{"tokens", {0, 1, 7}}},
    .variants =
        {
            {.id         = "ddp",
             .techniques = {"data_parallel", "collectives"},
             .idea       = "one all-reduce after the backward pass",
             .prediction = predict::nothing(),
             .prepare    = ddp},
            {.id         = "ddp_buckets",
             .techniques = {"data_parallel", "gradient_bucketing", "comm_compute_overlap", "collectives"},
             .idea       = "all-reduces of two layers, beside the backward pass of the layers before",
             .prediction = predict::ratio(1.3),
             .threads    = 2,
             .prepare    = ddp_buckets},
            {.id         = "ddp_no_sync",
             .techniques = {"data_parallel", "collectives"},
             .idea       = "four micro-batches, one all-reduce",
             .prediction = predict::ratio(1.0),
             .prepare    = ddp_no_sync},
            {.id         = "fsdp",
             .techniques = {"fully_sharded", "data_parallel", "collectives"},
             .idea       = "everything in shards; layers are gathered when they are needed",
             .prediction = predict::ratio(0.85),
             .prepare    = fsdp},
            {.id         = "fsdp_prefetch",
             .techniques = {"fully_sharded", "data_parallel", "comm_compute_overlap", "collectives"},
             .idea       = "the next layer is gathered, the last one scattered, while this one computes",
             .prediction = predict::ratio(1.25),
             .threads    = 2,
             .prepare    = fsdp_prefetch},
            {.id         = "fsdp_fp8",
             .techniques = {"fully_sharded", "data_parallel", "fp8", "collectives"},
             .idea       = "weights travel in E4M3, gradients in E5M2",
             .prediction = predict::ratio(1.45),
             .prepare    = fsdp_fp8},
            {.id         = "all_together",
             .techniques = {"fully_sharded", "data_parallel", "comm_compute_overlap", "fp8", "collectives"},
             .idea       = "shards, prefetch, fp8, and two micro-batches with one exchange of gradients",
             .prediction = predict::ratio(1.7),
             .threads    = 2,
             .prepare    = all_together},
        },
    .catalog = {"lab-021", "training-003"},
    .ranks   = kRanks,
};
FATHOM_REGISTER(gigabit);

}  // namespace
}  // namespace fathom::lab::distributed_training
