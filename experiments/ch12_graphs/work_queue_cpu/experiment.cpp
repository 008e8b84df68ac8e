// Equal numbers of uneven items are not equal work. A queue balances the work, at the cost of an atomic
// operation for each item.
#include "lab/experiment.h"
#include "walks.h"

namespace fathom::lab::work_queue_cpu {

const Experiment<Walks> walks{
    .question =
        "What does uneven work cost when it is split in advance, and what does a queue that balances it "
        "cost?",
    .limit    = Limit::none,
    .axes     = {{"items", {65536, 4096}}},
    .check_at = {{"items", {0, 1, 2, 61, 63, 64, 65, 127, 129, 1009}}},
    .variants =
        {
            {.id         = "static_split",
             .launch     = static_split,
             .techniques = {"thread_parallel_loops"},
             .idea       = "equal numbers of neighbouring items for each thread",
             .threads    = kAllThreads},
            // With two threads the trend gives the second 65 % of the work; a queue gives each 50 %.
            {.id         = "atomic_queue",
             .launch     = atomic_queue,
             .techniques = {"thread_parallel_loops", "work_queue"},
             .idea       = "each thread takes the next item from an atomic counter",
             .prediction = predict::ratio(1.15),
             .threads    = kAllThreads},
            {.id         = "batched_atomics",
             .launch     = batched_atomics,
             .techniques = {"thread_parallel_loops", "work_queue", "batched_atomics"},
             .idea       = "64 items at a time",
             .prediction = predict::ratio(1.3),
             .threads    = kAllThreads},
        },
    .catalog = {"graphs-006", "graphs-011"},
};
FATHOM_REGISTER(walks);

}  // namespace fathom::lab::work_queue_cpu
