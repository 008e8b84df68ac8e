// Two threads that write different variables of one cache line take the line from each other at every write:
// correct, invisible in the source, and many times slower than one thread alone.
#include "lab/experiment.h"
#include "count_classes.h"

namespace fathom::lab::false_sharing {

const Experiment<CountClasses> count_classes{
    .question = "What do counters cost that belong to different threads but lie in one cache line?",
    .limit    = Limit::none,
    .axes     = {{"n", {4194304}}},
    .check_at = {{"n", {0, 1, 2, 63, 64, 65, 10007}}},
    .variants =
        {
            {.id         = "adjacent",
             .launch     = adjacent,
             .techniques = {},
             .idea       = "each thread's four counters right behind the previous thread's",
             .prediction = predict::nothing(),
             .threads    = kAllThreads},
            {.id         = "padded",
             .launch     = padded,
             .techniques = {"false_sharing_avoidance"},
             .idea       = "each thread's counters begin a line of their own",
             .prediction = predict::ratio_at_least(3),
             .threads    = kAllThreads},
        },
};
FATHOM_REGISTER(count_classes);

}  // namespace fathom::lab::false_sharing
