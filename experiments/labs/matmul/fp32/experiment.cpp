// On the CUDA cores a product is limited by multiply-adds, one a clock and lane, if nothing else takes their
// turns: reads of shared memory, copies, addresses. How near does CUDA C++ come?
#include "lab/experiment.h"

#include "experiments/labs/matmul/cublaslt.h"
#include "rungs.h"

namespace fathom::lab::matmul {
namespace {

const Experiment<GemmFp32> fp32{
    .question = "How near to the multiply-add peak does an fp32 product come without tensor cores?",
    .limit    = Limit::flops,
    .axes     = {{"size", {8192, 4096}}},
    .quick    = {{"size", {2048}}},
    // Around a block of k (8 or 32), and tiles of 32, 128 and 256. Sizes are multiples of 4.
    .check_at = {{"size", {0, 4, 28, 36, 124, 132, 260}}},
    .variants =
        {
            {.id         = "shared_tile",
             .launch     = on_gpu(fp32_shared_tile),
             .techniques = {},
             .idea       = "a block takes 32 x 32 tiles of both into shared memory",
             .prediction = predict::share(0.1),
             .up_to      = {{"size", 4096}}},
            {.id         = "warp_tile",
             .launch     = on_gpu(fp32_warp_tile),
             .techniques = {"register_blocking", "multi_level_tiling", "double_buffering"},
             .idea       = "8 x 8 elements a thread, 64 x 32 a warp, the next tiles loaded ahead",
             .prediction = predict::share(0.68)},
            {.id         = "tma",
             .launch     = on_gpu(fp32_tma),
             .techniques = {"tma_pipeline", "swizzling"},
             .idea       = "TMA fetches and swizzles; threads read along k, nothing is transposed",
             .prediction = predict::share(0.72),
             .needs      = {machine::Feature::tma}},
            {.id         = "wide_tile",
             .launch     = on_gpu(fp32_wide_tile),
             .techniques = {"register_blocking", "completion_tokens"},
             .idea       = "8 x 16 elements a thread; warps meet at no barrier",
             .prediction = predict::share(0.74),
             .needs      = {machine::Feature::tma}},
            {.id         = "transposed",
             .techniques = {"register_blocking", "completion_tokens", "tma_pipeline"},
             .idea       = "both transposed first: sums and factors lie in different banks of registers",
             .prediction = predict::share(0.81),
             .prepare    = prepared_on_gpu<GemmFp32>(fp32_transposed),
             .needs      = {machine::Feature::tma}},
            {.id         = "cublaslt",
             .idea       = "cublasLtMatmul, CUBLAS_COMPUTE_32F, the heuristic's first algorithm",
             .prediction = predict::share(0.8),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu<GemmFp32>(cublaslt)},
            {.id         = "cublaslt_fastest",
             .idea       = "the fastest of all the algorithms that it offers, found by trial",
             .prediction = predict::share(0.8),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu<GemmFp32>(cublaslt_fastest)},
        },
    .backend = Backend::cuda,
    .catalog = {"tiling-003"},
    .group   = "matmul",
};
FATHOM_REGISTER(fp32);

}  // namespace
}  // namespace fathom::lab::matmul
