// A product of 145 tiles on 132 multiprocessors takes as long as one of 264. Who computes what, so that all
// end at the same time?
#include "lab/experiment.h"

#include "experiments/labs/matmul/cublaslt.h"
#include "experiments/labs/matmul/cutlass.h"
#include "schedules.h"

namespace fathom::lab::matmul {
namespace {

const Experiment<Gemm> tail{
    .question =
        "What does the last, partly filled wave of tiles cost a product, and what wins it back: parts of k "
        "of equal length (split-K), or an equal share of all work for each multiprocessor (stream-K)?",
    .limit = Limit::tensor_flops,
    // Tiles of 128 x 128, five rows of them: 145, 200 and 290, which are 1.1, 1.5 and 2.2 waves of an H200.
    .axes  = {{"columns", {3712, 5120, 7424}}, {"rows", {640}}, {"depth", {8192}}},
    .quick = {{"columns", {3712}}},
    // Around a tile; one, two and ten blocks of k, which CTAs share where there are few tiles.
    .check_at = {{"columns", {0, 120, 136, 1032}}, {"rows", {1, 129}}, {"depth", {72, 640}}},
    .variants =
        {
            {.id         = "data_parallel",
             .launch     = on_gpu(data_parallel),
             .techniques = {"persistent_kernel"},
             .idea       = "whole tiles, dealt to the CTAs in turn",
             .prediction = predict::share(0.42),
             .needs      = {machine::Feature::wgmma, machine::Feature::tma}},
            {.id         = "split_k",
             .launch     = on_gpu(split_k),
             .techniques = {"persistent_kernel", "split_k"},
             .idea       = "halves of k: twice as many parts of half the length",
             .prediction = predict::ratio(1.2),
             .needs      = {machine::Feature::wgmma, machine::Feature::tma}},
            {.id         = "stream_k",
             .launch     = on_gpu(stream_k),
             .techniques = {"persistent_kernel", "stream_k"},
             .idea       = "the same number of blocks of k for each CTA, across the ends of tiles",
             .prediction = predict::ratio(1.6),
             .needs      = {machine::Feature::wgmma, machine::Feature::tma}},
            {.id         = "one_tile_stream_k",
             .launch     = on_gpu(one_tile_stream_k),
             .techniques = {"persistent_kernel", "stream_k"},
             .idea       = "the same for the tiles of the broken wave alone; whole waves keep step",
             .prediction = predict::ratio_at_least(1.1),
             .needs      = {machine::Feature::wgmma, machine::Feature::tma}},
            {.id         = "cublaslt",
             .idea       = "cublasLtMatmul, the algorithm that its heuristic puts first",
             .prediction = predict::ratio(1.35),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu<Gemm>(cublaslt)},
            {.id         = "cublaslt_fastest",
             .techniques = {"library_autotuning"},
             .idea       = "the fastest of all the algorithms that it offers, found by trial",
             .prediction = predict::ratio(1.45),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu<Gemm>(cublaslt_fastest)},
            {.id         = "cutlass",
             .techniques = {"vendor_templates"},
             .idea       = "CUTLASS: 128 x 256 x 64, clusters of two, cooperative, persistent",
             .prediction = predict::ratio(1),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cutlass),
             .needs      = {machine::Feature::wgmma, machine::Feature::clusters, machine::Feature::tma}},
        },
    .backend = Backend::cuda,
    .catalog = {"graphs-011", "tiling-009"},
    .group   = "matmul",
};
FATHOM_REGISTER(tail);

}  // namespace
}  // namespace fathom::lab::matmul
