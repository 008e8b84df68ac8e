// Equal shares of uneven work are not equal work. A queue repairs that and costs an atomic operation for each
// item.
#include "walks.h"

namespace fathom::lab::work_queue_cpu {

const Experiment<Walks> walks{
    .question =
        "What does uneven work cost when it is split in advance, and what does a queue cost that balances "
        "it?",
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
            // The trend gives the last of two threads 65 % of the work, which a queue cuts to 50 %.
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
