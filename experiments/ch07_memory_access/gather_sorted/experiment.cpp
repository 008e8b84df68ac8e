// A gather from a table that no cache holds pays for a line of 64 bytes, and for a memory latency that it can
// only partly hide, for every 8 bytes it uses. Putting the indices in order first costs two passes over them.
#include "lab/experiment.h"
#include "gather.h"

namespace fathom::lab::gather_sorted {

const Experiment<Gather> gather{
    .question =
        "What does the order of the indices do to a gather, and does it pay to sort them for one use?",
    .limit    = Limit::memory,
    .axes     = {{"n", {8388608, 1048576}}},
    .check_at = {{"n", {0, 1, 2, 251, 32767, 32768, 32769, 100003}}},
    .variants =
        {
            {.id         = "random_order",
             .launch     = random_order,
             .techniques = {},
             .idea       = "the indices as they come",
             .prediction = predict::share(0.12)},
            {.id         = "bucketed",
             .launch     = bucketed,
             .techniques = {"tiling_in_shared_memory"},
             .idea =
                 "indices sorted into blocks of the table that fit the L2, within the call; then gathered",
             .prediction = predict::ratio(1.8)},
            {.id         = "sorted",
             .launch     = sorted,
             .techniques = {"layout_change", "coalescing"},
             .idea       = "indices kept in ascending order as data: the table streams through once",
             .prediction = predict::share_at_least(0.5)},
        },
};
FATHOM_REGISTER(gather);

}  // namespace fathom::lab::gather_sorted
