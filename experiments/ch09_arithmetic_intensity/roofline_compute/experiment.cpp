// roofline_sweep beyond the ridge: the same problem and kernels, with so many multiply-adds for every element
// that arithmetic is the limit.
#include "lab/experiment.h"

#include "experiments/ch09_arithmetic_intensity/roofline_sweep/sweep.h"

namespace fathom::lab::roofline_compute {

using roofline_sweep::Sweep;

const Experiment<Sweep> sweep{
    .question = "Beyond the ridge, how much of the FMA peak does a chain on every element reach?",
    .limit    = Limit::flops,
    // 2^27: 1 GiB. 64 is the last point of roofline_sweep, just short of the ridge.
    .axes     = {{"fmas", {512, 256, 128, 64}}, {"n", {1 << 27}}},
    .check_at = {{"fmas", {127, 512}}, {"n", {0, 1, 5, 2047, 2048, 2049}}},
    .variants =
        {
            {.id         = "plain",
             .launch     = on_gpu(roofline_sweep::plain),
             .techniques = {"roofline"},
             .idea       = "an element a thread: one chain, 16 multiply-adds to a turn of the loop",
             .prediction = predict::share(0.8)},
            {.id         = "blocked",
             .launch     = on_gpu(roofline_sweep::blocked),
             .techniques = {"roofline", "vectorization", "instruction_level_parallelism",
                            "register_blocking"},
             .idea       = "8 elements a thread: 64 multiply-adds to a turn of the loop",
             .prediction = predict::share_at_least(0.9)},
        },
    .backend = Backend::cuda,
    .group   = "roofline",
};
FATHOM_REGISTER(sweep);

}  // namespace fathom::lab::roofline_compute
