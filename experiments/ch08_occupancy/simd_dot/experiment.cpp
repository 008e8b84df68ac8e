// The compiler may not turn one running sum into eight: floating-point addition is not associative, and it
// keeps the order that was written. So the plainest loop is neither vectorized nor overlapped until the
// source says that the order does not matter.
#include "lab/experiment.h"
#include "dot.h"

namespace fathom::lab::simd_dot {

const Experiment<Dot> dot{
    .question = "What does a dot product gain from vectors, and where does memory take the gain away?",
    .limit    = Limit::memory,
    // From L3, L2 and DRAM.
    .axes     = {{"n", {262144, 16384, 16777216}}},
    .check_at = {{"n", {0, 1, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 10007}}},
    .variants =
        {
            {.id         = "scalar",
             .launch     = scalar,
             .techniques = {},
             .idea       = "one sum in the order of the loop: an FMA in 4 cycles",
             .prediction = predict::share(0.1)},
            {.id         = "omp_simd",
             .launch     = omp_simd,
             .techniques = {"simd"},
             .idea       = "`omp simd reduction`: the compiler may reorder and uses one vector of sums",
             .prediction = predict::ratio(7)},
            {.id         = "highway",
             .launch     = highway,
             .techniques = {"simd", "instruction_level_parallelism", "unrolling"},
             .idea       = "eight vectors of sums by hand, the widest the machine has (Highway)",
             .prediction = predict::share_at_least(0.8)},
            {.id         = "openblas",
             .idea       = "cblas_sdot, one thread",
             .prediction = predict::share_at_least(0.8),
             .kind       = Kind::library,
             .prepare    = prepare_openblas,
             .library    = "libopenblas.so.0"},
        },
    .clock = Clock::cpu,
};
FATHOM_REGISTER(dot);

}  // namespace fathom::lab::simd_dot
