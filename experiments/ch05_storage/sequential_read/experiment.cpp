// A small read takes hardly less time than a large one: most of the cost is per read. On flash, sorting
// requests by position gains little by itself, but it allows fewer and larger reads.
#include "lab/experiment.h"
#include "sequential_read.h"

namespace fathom::lab::sequential_read {

const Experiment<BlockSums> block_sums{
    .question =
        "What do small reads in random order cost against large contiguous ones, past the page cache?",
    .limit    = Limit::none,  // a virtual disk has no stable rate (notes.md)
    .axes     = {{"blocks", {512}}},
    .check_at = {{"blocks", {0, 1, 61, 255, 256, 257}}},
    .variants =
        {
            {.id         = "random_4k",
             .launch     = random_4k,
             .techniques = {},
             .idea       = "4 KiB reads in the order of the keys"},
            {.id         = "ordered_4k",
             .launch     = ordered_4k,
             .techniques = {"sequential_io"},
             .idea       = "4 KiB reads in file order: O_DIRECT has no read-ahead",
             .prediction = predict::ratio(1.2)},
            {.id         = "ordered_1m",
             .launch     = ordered_1m,
             .techniques = {"sequential_io"},
             .idea       = "1 MiB reads in file order",
             .prediction = predict::ratio_at_least(30)},
        },
    .catalog = {"storage-003"},
};
FATHOM_REGISTER(block_sums);

}  // namespace fathom::lab::sequential_read
