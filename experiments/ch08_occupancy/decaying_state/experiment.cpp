// A decode loop takes longer for a token the longer it has run. Three suspects are removed one by one. Then
// two explanations of what was found are told apart. Constructed for the book's first case study: the loop is
// ours.
#include "lab/experiment.h"
#include "memory.h"

namespace fathom::lab::decaying_state {

const Experiment<Memory> memory{
    .question = "A decode loop slows down as it runs: subnormal numbers, a power-of-two stride or a flush?",
    .limit    = Limit::none,  // the variants differ in how much they do
    .axes     = {{"tokens", {4096, 128, 512, 1024, 2048}}},
    .check_at = {{"tokens", {0, 1, 2, 15, 16, 17, 127, 255, 256, 257, 389}}},
    .variants =
        {
            {.id         = "as_found",
             .launch     = as_found,
             .techniques = {},
             .idea       = "subnormals, rows of the trace 4096 bytes apart, a flush each token"},
            {.id         = "flush_to_zero",
             .launch     = flush_to_zero,
             .techniques = {"flush_to_zero"},
             .idea       = "without A: subnormal numbers are zero",
             .prediction = predict::ratio(7)},
            {.id         = "padded_trace",
             .launch     = padded_trace,
             .techniques = {"layout_change"},
             .idea       = "without B: a line more between rows of the trace",
             .prediction = predict::ratio(1)},
            {.id         = "buffered_output",
             .launch     = buffered_output,
             .techniques = {"batching"},
             .idea       = "without C: a system call for 16 tokens",
             .prediction = predict::ratio(1)},
            {.id         = "all_three",
             .launch     = all_three,
             .techniques = {"flush_to_zero", "layout_change", "batching"},
             .idea       = "without A, B and C",
             .prediction = predict::ratio(9)},
            {.id         = "flushed_but_kept",
             .launch     = flushed_but_kept,
             .techniques = {"flush_to_zero"},
             .idea       = "without A, but rows of zeros stay in the list",
             .prediction = predict::ratio(1.1)},
            {.id         = "retired_when_small",
             .launch     = retired_when_small,
             .techniques = {},
             .idea       = "with A, but rows of subnormals leave the list",
             .prediction = predict::ratio(7)},
        },
    .clock   = Clock::cpu,  // one thread, and what it writes to never makes it wait
    .catalog = {"book-031"},
};
FATHOM_REGISTER(memory);

}  // namespace fathom::lab::decaying_state
