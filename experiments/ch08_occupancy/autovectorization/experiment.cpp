// A compiler changes a loop only as far as the change holds for every input. Two promises, about pointers and
// about the order of additions, and then what it still leaves to the author.
#include "lab/experiment.h"
#include "matvec.h"

namespace fathom::lab::autovectorization {

const Experiment<MatVec> matvec{
    .question = "What does a compiler make of a loop as written, with each promise, and what of it by hand?",
    .limit    = Limit::memory,
    // From L3 (1 MiB), L2 (64 KiB) and DRAM (64 MiB).
    .axes     = {{"n", {512, 128, 4096}}},
    .check_at = {{"n", {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 61, 127, 129}}},
    .variants =
        {
            {.id         = "as_written",
             .launch     = as_written,
             .techniques = {},
             .idea       = "y[i] += a[i][k] x[k]: a multiply-add and a store in every step",
             .prediction = predict::share(0.04)},
            {.id         = "restricted",
             .launch     = restricted,
             .techniques = {"restrict_pointers"},
             .idea = "y is __restrict: vectors of products, one store a row; the additions keep their order",
             .prediction = predict::ratio(1.33)},
            {.id         = "associative",
             .launch     = associative,
             .techniques = {"restrict_pointers", "reassociation"},
             .idea       = "-fassociative-math: the compiler keeps a vector of sums",
             .prediction = predict::ratio(7)},
            {.id         = "simd",
             .launch     = simd,
             .techniques = {"simd", "instruction_level_parallelism", "unrolling"},
             .idea       = "by hand: four rows at a time, eight vectors of sums",
             .prediction = predict::share_at_least(0.8)},
            {.id         = "openblas",
             .idea       = "cblas_sgemv, one thread",
             .prediction = predict::share_at_least(0.8),
             .kind       = Kind::library,
             .prepare    = openblas,
             .library    = "libopenblas.so.0"},
        },
    .clock   = Clock::cpu,
    .catalog = {"book-017"},
};
FATHOM_REGISTER(matvec);

}  // namespace fathom::lab::autovectorization
