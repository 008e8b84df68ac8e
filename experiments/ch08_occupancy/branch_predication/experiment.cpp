// A branch that goes either way at random is mispredicted half of the time, and each miss throws away some 15
// cycles of work. Doing both sides and keeping one always costs a few instructions.
#include "lab/experiment.h"
#include "partition.h"

namespace fathom::lab::branch_predication {

const Experiment<Partition> partition{
    .question = "What does an unpredictable branch cost, and when is branch-free code faster?",
    .limit    = Limit::memory,
    // A coin toss, and a condition that nearly always fails.
    .axes     = {{"above_percent", {50, 1}}, {"n", {1048576}}},
    .check_at = {{"above_percent", {0, 1, 50, 100}},
                 {"n", {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 251}}},
    .variants =
        {
            {.id         = "branch",
             .launch     = branch,
             .techniques = {},
             .idea       = "if above: to the front, else: to the back",
             .prediction = predict::nothing()},
            {.id         = "predicated",
             .launch     = predicated,
             .techniques = {"predication"},
             .idea       = "write to both ends, advance only one of them",
             .prediction = predict::ratio_at_least(4)},
            {.id         = "compressed",
             .launch     = compressed,
             .techniques = {"predication", "simd"},
             .idea       = "8 at a time, partitioned by a permutation from a table of 256",
             .prediction = predict::ratio_at_least(8)},
        },
    .clock = Clock::cpu,
};
FATHOM_REGISTER(partition);

}  // namespace fathom::lab::branch_predication
