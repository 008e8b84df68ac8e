// A kernel of taps x taps weights that is a column times a row has taps + taps numbers in it, and the sum
// over it can be done with as few multiply-adds a pixel. Whether the time follows depends on the image
// between the two passes.
#include "lab/experiment.h"
#include "filter.h"

namespace fathom::lab::separable_filter_cpu {

const Experiment<Filter> filter{
    .question = "A blur's kernel is a column times a row: how much of the saved arithmetic is saved time?",
    .limit    = Limit::flops,
    // 4096: images of 64 MiB, in DRAM. 512: 1 MiB, in L3.
    .axes     = {{"n", {4096, 512}}, {"taps", {7, 3, 15}}},
    .check_at = {{"n", {0, 1, 2, 7, 8, 9, 61, 63, 64, 65, 127, 129, 251, 511, 512, 513}},
                 {"taps", {1, 3, 7, 15}}},
    .variants =
        {
            {.id         = "direct",
             .launch     = direct,
             .techniques = {},
             .idea       = "taps^2 multiply-adds a pixel, eight vectors of sums in registers",
             .prediction = predict::share(0.17)},
            {.id         = "two_passes",
             .launch     = two_passes,
             .techniques = {"separable_filter"},
             .idea       = "taps multiply-adds down the columns, then taps along the rows of the result",
             .prediction = predict::ratio(2)},
            {.id         = "two_passes_tiled",
             .launch     = two_passes_tiled,
             .techniques = {"separable_filter", "multi_level_tiling"},
             .idea       = "the second pass follows the first row by row: one row lies between them",
             .prediction = predict::ratio(3)},
        },
    .catalog = {"book-011"},
};
FATHOM_REGISTER(filter);

}  // namespace fathom::lab::separable_filter_cpu
