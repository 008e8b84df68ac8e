// The smallest pair there is: two loops that differ in one operator. What there is to learn is how a speed-up
// is measured, and that it belongs to a size.
#include "lab/experiment.h"
#include "normalize.h"

namespace fathom::lab::basic_benchmark {

const Experiment<Normalize> normalize{
    .question = "What does a division by the same number cost, and at which sizes does anybody notice?",
    .limit    = Limit::memory,
    // Three input sets of 8 n bytes: 2^10 24 KiB, in L1; 2^14 384 KiB, in L2; 2^23 192 MiB, in DRAM.
    .axes     = {{"n", {1 << 10, 1 << 14, 1 << 23}}},
    .check_at = {{"n", {0, 1, 7, 8, 9, 31, 1009}}},
    .variants =
        {
            {.id         = "division",
             .launch     = division,
             .techniques = {},
             .idea       = "x / norm for each element",
             .prediction = predict::nothing()},
            {.id         = "reciprocal",
             .launch     = reciprocal,
             .techniques = {"strength_reduction"},
             .idea       = "1 / norm once, a product for each element: memory is the limit at every size",
             .prediction = predict::share_at_least(0.6)},
        },
    .catalog = {"harness-013"},
};
FATHOM_REGISTER(normalize);

}  // namespace fathom::lab::basic_benchmark
