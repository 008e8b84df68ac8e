// A load from memory takes about a hundred nanoseconds, yet a core can move a line every few if it knows the
// addresses early. In a linked list it never does: each address is in the line before.
#include "lab/experiment.h"
#include "linked_records.h"

namespace fathom::lab::pointer_chase {

const Experiment<LinkedRecords> linked_records{
    .question = "What does the order in memory of a linked list cost, from L2 to DRAM?",
    .limit    = Limit::memory,
    // Beyond the last-level cache of most machines, inside L2, inside the last-level cache.
    .axes     = {{"bytes", {64 << 20, 256 << 10, 8 << 20}}},
    .check_at = {{"bytes", {0, 64, 2 * 64, 61 * 64, 4095 * 64, 4096 * 64, 4097 * 64}}},
    .variants =
        {
            {.id         = "random_order",
             .launch     = random_order,
             .techniques = {},
             .idea       = "random links: each line is requested when the one before has arrived",
             .prediction = predict::share(0.03)},
            {.id         = "sequential_order",
             .launch     = sequential_order,
             .techniques = {"access_order"},
             .idea       = "links in memory order: the prefetcher predicts the next address",
             .prediction = predict::share(0.7)},
        },
    .cache = Cache::hot,  // one set again and again, so that `bytes` is the whole working set
};
FATHOM_REGISTER(linked_records);

}  // namespace fathom::lab::pointer_chase
