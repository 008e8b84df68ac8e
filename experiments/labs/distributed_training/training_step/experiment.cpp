// Exchanges can go on beside the computation. On the loopback of a machine with as many ranks as cores they
// are computation themselves: copies into and out of sockets. So the predictions are that overlap moves 1 ms
// of copies beside 7 ms of computation and gains nothing, that sharding costs half of the copies again, and
// that rounding to fp8 takes longer than the copies that it saves (the arithmetic is in notes.md).
#include "lab/experiment.h"

#include "training.h"

namespace fathom::lab::distributed_training {
namespace {

const Experiment<Training> training_step{
    .question =
        "What do overlap, sharding, micro-batches and fp8 messages change in one training step of two ranks "
        "on the loopback: time, bytes sent, bytes kept?",
    .limit    = Limit::flops,
    .axes     = {{"tokens", {64}}, {"link_mb_s", {0}}},
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
             .prediction = predict::ratio(1.0),
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
             .prediction = predict::ratio(0.95),
             .prepare    = fsdp},
            {.id         = "fsdp_prefetch",
             .techniques = {"fully_sharded", "data_parallel", "comm_compute_overlap", "collectives"},
             .idea       = "the next layer is gathered, the last one scattered, while this one computes",
             .prediction = predict::ratio(0.95),
             .threads    = 2,
             .prepare    = fsdp_prefetch},
            {.id         = "fsdp_fp8",
             .techniques = {"fully_sharded", "data_parallel", "fp8", "collectives"},
             .idea       = "weights travel in E4M3, gradients in E5M2",
             .prediction = predict::ratio(0.9),
             .prepare    = fsdp_fp8},
            {.id         = "all_together",
             .techniques = {"fully_sharded", "data_parallel", "comm_compute_overlap", "fp8", "collectives"},
             .idea       = "shards, prefetch, fp8, and two micro-batches with one exchange of gradients",
             .prediction = predict::ratio(0.85),
             .threads    = 2,
             .prepare    = all_together},
        },
    .catalog = {"lab-021", "training-003"},
    .ranks   = kRanks,
};
FATHOM_REGISTER(training_step);

}  // namespace
}  // namespace fathom::lab::distributed_training
