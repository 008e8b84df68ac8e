// A matrix product does n multiply-adds for every element it moves. Which techniques keep the FMA units busy?
#include "lab/experiment.h"
#include "matmul.h"

namespace fathom::lab::matmul_cpu {
namespace {

const Experiment<MatMul> matmul{
    .question = "Which steps lead from three loops to the FMA peak, and how far does each get?",
    .limit    = Limit::flops,
    .axes     = {{"n", {1024, 2048, 256}}},
    // Around the register tiles (6 x 16 and 14 x 32); 401 has a second block in depth and a third in rows.
    .check_at = {{"n", {0, 1, 7, 31, 33, 97, 130, 401}}},
    .variants =
        {
            {.id         = "loop_order",
             .launch     = loop_order,
             .techniques = {},
             .idea       = "i, k, j: the inner loop runs along rows, and the compiler vectorises it",
             .prediction = predict::share(0.15),
             .up_to      = {{"n", 1024}}},
            {.id         = "naive",
             .launch     = naive,
             .techniques = {},
             .idea       = "i, j, k: one dot product for each element, down the columns of b",
             .prediction = predict::ratio(0.1),
             .up_to      = {{"n", 256}}},
            {.id         = "tiled",
             .launch     = tiled,
             .techniques = {"multi_level_tiling"},
             .idea       = "blocks of b that stay in L2, and slices of them in L1, while rows of a pass",
             .prediction = predict::ratio(1.5),
             .up_to      = {{"n", 1024}}},
            {.id         = "register_blocked",
             .launch     = register_blocked,
             .techniques = {"simd", "multi_level_tiling", "register_blocking"},
             .idea       = "a 6 x 16 tile of out (14 x 32 with AVX-512) stays in registers along k",
             .prediction = predict::ratio(4)},
            {.id         = "packed",
             .launch     = packed,
             .techniques = {"simd", "multi_level_tiling", "software_prefetch", "register_blocking",
                            "packing"},
             .idea       = "blocks of a and b copied into the order in which the register tile reads them",
             .prediction = predict::share_at_least(0.85)},
            {.id         = "threads",
             .launch     = threads,
             .techniques = {"simd", "multi_level_tiling", "software_prefetch", "register_blocking", "packing",
                            "thread_parallel_loops"},
             .idea       = "the row blocks of packed on all threads, around one shared panel of b",
             .prediction = predict::share_at_least(0.8),
             .threads    = kAllThreads},
            {.id         = "openblas_1t",
             .idea       = "cblas_sgemm on one thread",
             .prediction = predict::share_at_least(0.85),
             .kind       = Kind::library,
             .prepare    = openblas,
             .library    = "libopenblas.so.0"},
            {.id         = "openblas_all",
             .idea       = "cblas_sgemm on all threads",
             .prediction = predict::share_at_least(0.8),
             .kind       = Kind::library,
             .threads    = kAllThreads,
             .prepare    = openblas,
             .library    = "libopenblas.so.0"},
            {.id         = "onednn_1t",
             .idea       = "dnnl_sgemm on one thread",
             .prediction = predict::share_at_least(0.85),
             .kind       = Kind::library,
             .prepare    = onednn,
             .library    = "libdnnl.so.2"},
            {.id         = "onednn_all",
             .idea       = "dnnl_sgemm on all threads",
             .prediction = predict::share_at_least(0.8),
             .kind       = Kind::library,
             .threads    = kAllThreads,
             .prepare    = onednn,
             .library    = "libdnnl.so.2"},
        },
    .group = "matmul",
};
FATHOM_REGISTER(matmul);

}  // namespace
}  // namespace fathom::lab::matmul_cpu
