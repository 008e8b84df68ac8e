// Numbers of a byte halve what a step of sharded training sends, and both ends pay for it with arithmetic.
#include "lab/experiment.h"
#include "collectives.h"

namespace fathom::lab::fp8_collectives_cpu {

const Experiment<Collectives> fp8_collectives_cpu{
    .question =
        "What does it cost two ranks to gather weights and sum gradients in 8 bits, and below which "
        "speed of a link does it pay?",
    .limit    = Limit::none,
    .axes     = {{"shard", {1 << 20, 1 << 14}}},
    .check_at = {{"shard", {0, 1, 7, 1009}}},
    .variants =
        {
            {.id         = "bf16_both",
             .techniques = {"fully_sharded", "collectives"},
             .idea       = "16 bits both ways",
             .prediction = predict::nothing(),
             .prepare    = bf16_both},
            {.id         = "fp8_gather",
             .techniques = {"fully_sharded", "fp8", "collectives"},
             .idea       = "weights in E4M3",
             .prediction = predict::ratio(0.8),
             .prepare    = fp8_gather},
            {.id         = "fp8_both",
             .techniques = {"fully_sharded", "fp8", "collectives"},
             .idea       = "weights in E4M3, gradients in E5M2",
             .prediction = predict::ratio(0.7),
             .prepare    = fp8_both},
        },
    .catalog = {"training-004"},
    .ranks   = kRanks,
};
FATHOM_REGISTER(fp8_collectives_cpu);

}  // namespace fathom::lab::fp8_collectives_cpu
