// An FMA has a latency of 4 cycles, and two can start in every cycle: a loop that waits for its last result
// uses an eighth of the core. The accumulators here are the running values of Horner's rule.
#include "lab/experiment.h"
#include "polynomial.h"

namespace fathom::lab::accumulators {

const Experiment<Polynomial> polynomial{
    .question = "How many independent chains of FMAs keep one core's FMA units busy?",
    .limit    = Limit::flops,
    .axes     = {{"n", {12288}}},
    .check_at = {{"n", {0, 1, 7, 8, 9, 31, 61, 63, 64, 65, 95, 96, 97, 127, 128, 129, 251}}},
    .variants =
        {
            {.id         = "one_chain",
             .launch     = one_chain,
             .techniques = {},
             .idea       = "8 points in one register: each FMA waits for the one before",
             .prediction = predict::share(0.125)},
            {.id         = "two_chains",
             .launch     = two_chains,
             .techniques = {"instruction_level_parallelism"},
             .idea       = "two registers of points at a time",
             .prediction = predict::ratio(2)},
            {.id         = "four_chains",
             .launch     = four_chains,
             .techniques = {"instruction_level_parallelism"},
             .idea       = "four",
             .prediction = predict::ratio(4)},
            {.id         = "eight_chains",
             .launch     = eight_chains,
             .techniques = {"instruction_level_parallelism"},
             .idea       = "eight: latency 4 times 2 units",
             .prediction = predict::share_at_least(0.9)},
            {.id         = "twelve_chains",
             .launch     = twelve_chains,
             .techniques = {"instruction_level_parallelism", "register_pressure"},
             .idea       = "twelve: some to spare, points read from L1 by the FMA itself",
             .prediction = predict::share_at_least(0.95)},
            {.id         = "sixteen_chains",
             .launch     = sixteen_chains,
             .techniques = {"instruction_level_parallelism", "register_pressure"},
             .idea = "sixteen running values in sixteen registers: none left for points and coefficients",
             .prediction = predict::ratio(7)},
        },
    .cache   = Cache::hot,
    .clock   = Clock::cpu,
    .catalog = {"harness-014"},
};
FATHOM_REGISTER(polynomial);

}  // namespace fathom::lab::accumulators
