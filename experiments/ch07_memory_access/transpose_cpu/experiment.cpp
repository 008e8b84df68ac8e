// A transpose moves every byte once and computes nothing, yet the plain loop runs at a small fraction of a
// copy's speed: one side of it walks down columns, at a power-of-two stride, and every line it fetches is
// evicted before its other 15 floats are used.
#include "lab/experiment.h"
#include "transpose.h"

namespace fathom::lab::transpose_cpu {

const Experiment<Transpose> transpose{
    .question = "How near to a plain copy can a matrix transpose come on one core?",
    .limit    = Limit::memory,
    // 2000: the same loop without power-of-two strides.
    .axes     = {{"n", {2048, 8192, 2000}}},
    .check_at = {{"n", {0, 1, 7, 8, 9, 15, 16, 17, 31, 61, 127, 128, 129, 251, 513}}},
    .variants =
        {
            {.id         = "baseline",
             .launch     = baseline,
             .techniques = {},
             .idea       = "writes rows, reads columns, element by element",
             .prediction = predict::share(0.08),
             .up_to      = {{"n", 2048}}},
            {.id         = "tiled",
             .launch     = tiled,
             .techniques = {"tiling_in_shared_memory"},
             .idea       = "16 x 16 tiles: 16 lines of each side stay in L1 until they are fully used",
             .prediction = predict::share(0.3)},
            {.id         = "vectorized",
             .launch     = vectorized,
             .techniques = {"tiling_in_shared_memory", "vectorization"},
             .idea       = "8 x 8 blocks turned in registers: 8 loads and 8 stores of 32 bytes for 64 floats",
             .prediction = predict::share(0.5)},
            {.id         = "streamed",
             .launch     = streamed,
             .techniques = {"tiling_in_shared_memory", "vectorization", "cache_hints"},
             .idea = "tiles gathered in an L1 buffer, then written past the caches in runs of 512 bytes",
             .prediction = predict::share_at_least(0.7)},
            {.id         = "padded",
             .launch     = padded,
             .techniques = {"tiling_in_shared_memory", "vectorization", "cache_hints",
                            "bank_conflict_avoidance"},
             .idea       = "a spare line behind each row of that buffer",
             .prediction = predict::share_at_least(0.75)},
            {.id         = "long_runs",
             .launch     = long_runs,
             .techniques = {"tiling_in_shared_memory", "vectorization", "cache_hints",
                            "bank_conflict_avoidance", "coalescing"},
             .idea       = "a buffer in L2 instead, and 2 KiB of an input row at a time",
             .prediction = predict::share_at_least(0.75)},
            {.id         = "openblas",
             .idea       = "cblas_somatcopy",
             .prediction = predict::share(0.3),
             .kind       = Kind::library,
             .prepare    = prepare_openblas,
             .library    = "libopenblas.so.0"},
        },
    .group = "transpose",
};
FATHOM_REGISTER(transpose);

}  // namespace fathom::lab::transpose_cpu
