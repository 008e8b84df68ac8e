// What an addition loses to rounding is itself a number that fits a register, and a few more additions find
// it. They cost time only where additions are what a loop waits for.
#include "lab/experiment.h"
#include "array.h"

namespace fathom::lab::compensated_sum {

const Experiment<Array> array{
    .question = "What does it cost to add up an array without the error growing with its length?",
    .limit    = Limit::memory,
    // From L3, L2 and DRAM.
    .axes     = {{"n", {524288, 16384, 16777216}}},
    .check_at = {{"n",
                  {0, 1, 7, 8, 9, 31, 32, 33, 47, 48, 49, 63, 64, 65, 511, 512, 4095, 4096, 4097, 10007}}},
    .variants =
        {
            {.id         = "running",
             .launch     = running,
             .techniques = {},
             .idea       = "one sum in the order of the loop: an addition in 3 cycles",
             .prediction = predict::share(0.05)},
            {.id         = "kahan",
             .launch     = kahan,
             .techniques = {"compensated_summation"},
             .idea       = "four additions an element, each waiting for the one before: 12 cycles",
             .prediction = predict::ratio(0.25)},
            {.id         = "two_sum",
             .launch     = two_sum,
             .techniques = {"compensated_summation", "instruction_level_parallelism"},
             .idea       = "seven additions an element on two adders, of which one waits: 3.5 cycles",
             .prediction = predict::ratio(0.86)},
            {.id         = "pairwise",
             .launch     = pairwise,
             .techniques = {"simd", "instruction_level_parallelism"},
             .idea       = "a tree over blocks of 4096, each block in 64 sums",
             .prediction = predict::share_at_least(0.8)},
            {.id         = "kahan_chains",
             .launch     = kahan_chains,
             .techniques = {"compensated_summation", "simd", "instruction_level_parallelism"},
             .idea       = "Kahan's sum in six vectors: 2 cycles for eight elements",
             .prediction = predict::ratio(12)},
            {.id         = "two_sum_chains",
             .launch     = two_sum_chains,
             .techniques = {"compensated_summation", "simd", "instruction_level_parallelism"},
             .idea       = "TwoSum in four vectors: 3.5 cycles for eight elements",
             .prediction = predict::ratio(6.9)},
            {.id         = "double_chains",
             .launch     = double_chains,
             .techniques = {"simd", "instruction_level_parallelism"},
             .idea       = "double precision in eight vectors: 2 cycles for eight elements",
             .prediction = predict::ratio(12)},
        },
    .clock   = Clock::cpu,
    .catalog = {"book-019"},
};
FATHOM_REGISTER(array);

}  // namespace fathom::lab::compensated_sum
