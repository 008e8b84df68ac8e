// The kernel of gemm_bf16 takes another type: a block of k is 128 bytes whatever the numbers are. Does its
// plan also reach the library's speed where an instruction has an eighth of the depth of fp8's and half of
// bf16's?
#include "lab/experiment.h"

#include "cluster.h"
#include "experiments/labs/matmul/cublaslt.h"

namespace fathom::lab::matmul {
namespace {

const Experiment<GemmTf32> tf32{
    .question = "Does the plan of the bf16 product carry over to tf32?",
    .limit    = Limit::tensor_flops,
    .axes     = {{"size", {8192, 4096}}},
    .quick    = {{"size", {2048}}},
    // Around a block of k (32), and tiles of 128 and 256. Sizes are multiples of 4.
    .check_at = {{"size", {0, 4, 28, 36, 124, 132, 260}}},
    .variants =
        {
            {.id         = "cublaslt",
             .idea       = "cublasLtMatmul, CUBLAS_COMPUTE_32F_FAST_TF32, the heuristic's first algorithm",
             .prediction = predict::share(0.78),
             .prepare    = prepared_on_gpu<GemmTf32>(cublaslt)},
            {.id         = "cluster",
             .launch     = on_gpu(tf32_cluster),
             .techniques = {"tf32", "clusters", "tma_multicast", "warp_specialization", "persistent_kernel"},
             .idea       = "the kernel of gemm_bf16 with wgmma m64n256k8",
             .prediction = predict::ratio(1),
             .needs      = {machine::Feature::wgmma, machine::Feature::clusters, machine::Feature::tma}},
            {.id         = "cublaslt_fastest",
             .idea       = "the fastest of all the algorithms that it offers, found by trial",
             .prediction = predict::ratio(1.02),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu<GemmTf32>(cublaslt_fastest)},
        },
    .backend = Backend::cuda,
    .catalog = {"quant-001"},
    .group   = "matmul",
};
FATHOM_REGISTER(tf32);

}  // namespace
}  // namespace fathom::lab::matmul
