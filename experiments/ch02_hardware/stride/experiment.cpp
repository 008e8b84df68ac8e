// Memory comes in lines. A walk down the columns of a row-major matrix uses 4 bytes of each line, and a
// power-of-two stride makes all those lines compete for a few sets of the cache.
#include "lab/experiment.h"
#include "column_sums.h"

namespace fathom::lab::stride {

const Experiment<ColumnSums> column_sums{
    .question = "What does a stride of one row cost against a stride of one element, for the same sums?",
    .limit    = Limit::memory,
    // The stride in elements. 2000: the same walk without a power of two; 512: in reach of the caches.
    .axes     = {{"n", {2048, 2000, 512}}},
    .check_at = {{"n", {0, 1, 2, 7, 8, 9, 15, 16, 17, 61, 127, 128, 129}}},
    .variants =
        {
            {.id         = "column_order",
             .launch     = column_order,
             .techniques = {},
             .idea       = "stride n: a line fetched for each element",
             .prediction = predict::share(0.05)},
            {.id         = "row_order",
             .launch     = row_order,
             .techniques = {"access_order"},
             .idea       = "stride 1: each line is fetched once and used whole",
             .prediction = predict::share_at_least(0.8)},
        },
};
FATHOM_REGISTER(column_sums);

}  // namespace fathom::lab::stride
