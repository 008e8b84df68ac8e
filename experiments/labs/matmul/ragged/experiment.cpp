// A model's products are not powers of two: rows are tokens, and 2880 is neither a multiple of 128 nor of
// 256. How much of the speed of large squares is left?
#include "lab/experiment.h"

#include "experiments/labs/matmul/bf16/rungs.h"
#include "experiments/labs/matmul/cublaslt.h"
#include "experiments/labs/matmul/cutlass.h"
#include "experiments/labs/matmul/tail/schedules.h"

namespace fathom::lab::matmul {
namespace {

const Experiment<Gemm> ragged{
    .question = "What is left of a bf16 product's speed where the shape does not fit the tiles?",
    .limit    = Limit::tensor_flops,
    // 2880 deep, as gpt-oss: a token beyond 4096, 64 tokens against the unembedding and against a square
    // layer.
    .axes     = {{"shape", {"4097x2880", "64x201088", "64x2880"}}},
    .quick    = {{"shape", {"4097x2880"}}},
    .check_at = {{"shape", {"0x8", "1x8", "63x248", "64x264", "65x264", "129x520"}}},
    .variants =
        {
            {.id         = "cublaslt",
             .idea       = "cublasLtMatmul, the algorithm that its heuristic puts first",
             .prediction = predict::share(0.6),
             .prepare    = prepared_on_gpu<Gemm>(cublaslt)},
            {.id         = "cublaslt_fastest",
             .idea       = "the fastest of all the algorithms that it offers, found by trial",
             .prediction = predict::ratio(1.05),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu<Gemm>(cublaslt_fastest)},
            {.id         = "cutlass",
             .techniques = {"vendor_templates"},
             .idea       = "CUTLASS: 128 x 256 x 64, clusters of two, cooperative, persistent",
             .prediction = predict::ratio(0.95),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cutlass),
             .needs      = {machine::Feature::wgmma, machine::Feature::clusters, machine::Feature::tma}},
            {.id         = "one_tile_stream_k",
             .launch     = on_gpu(one_tile_stream_k),
             .techniques = {"stream_k"},
             .idea       = "an equal share of the broken wave's blocks of k for each multiprocessor",
             .prediction = predict::ratio(0.8),
             .needs      = {machine::Feature::wgmma, machine::Feature::tma}},
            {.id         = "cluster",
             .launch     = on_gpu(cluster),
             .idea       = "the op gemm_bf16, whose tile is chosen by the number of waves",
             .prediction = predict::ratio(1),
             .kind       = Kind::engine,
             .op         = "kernels/gemm/gemm_bf16.cu",
             .needs      = {machine::Feature::wgmma, machine::Feature::tma, machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
    .catalog = {"tiling-009"},
    .group   = "matmul",
};
FATHOM_REGISTER(ragged);

}  // namespace
}  // namespace fathom::lab::matmul
