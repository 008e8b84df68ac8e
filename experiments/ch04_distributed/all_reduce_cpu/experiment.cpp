// An all-reduce can send everything to one rank, everything to everybody, or to each rank its part. Which is
// quickest depends on the size: on waits where messages are small, on bytes where they are large.
#include "lab/experiment.h"
#include "all_reduce.h"

namespace fathom::lab::all_reduce {

constexpr int kRanks = 2;

const Experiment<AllReduce> all_reduce_cpu{
    .question =
        "Which all-reduce is quickest between processes that share memory, for few numbers and for many?",
    .limit    = Limit::memory,
    .axes     = {{"n", {1024, 65536, kLargest}}},
    .check_at = {{"n", {0, 1, 2, 31, 4095, 4096, 4097}}},
    .variants =
        {
            {.id         = "gather_broadcast",
             .launch     = gather_broadcast,
             .techniques = {"collectives"},
             .idea       = "rank 0 adds up everything and sends the sum to all",
             .prediction = predict::nothing()},
            {.id         = "one_shot",
             .launch     = one_shot,
             .techniques = {"collectives", "collective_tuning"},
             .idea       = "everybody publishes and adds up everything: one wait",
             .prediction = predict::ratio_at_least(1.3)},
            {.id         = "two_shot",
             .launch     = two_shot,
             .techniques = {"collectives", "collective_tuning"},
             .idea       = "reduce-scatter and all-gather: a rank adds up its segment only",
             .prediction = predict::ratio_at_least(1.3)},
            {.id         = "group_sockets",
             .techniques = {"collectives"},
             .idea       = "the group of src/comm: two_shot over TCP, as between hosts",
             .prediction = predict::nothing(),
             .prepare    = group_sockets},
        },
    .catalog      = {"distributed-001"},
    .ranks        = kRanks,
    .shared_bytes = kSharedBytes(kRanks),
};
FATHOM_REGISTER(all_reduce_cpu);

}  // namespace fathom::lab::all_reduce
