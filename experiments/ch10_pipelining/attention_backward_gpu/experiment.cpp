// The backward pass of attention makes three sums over T^2 weights and their gradients. What does it gain
// when these never leave the chip, and what does a dq cost whose bits are the same every time?
#include "lab/experiment.h"
#include "gradients.h"

namespace fathom::lab::attention_backward_gpu {

const Experiment<Gradients> gradients{
    .question =
        "What does the backward pass of attention gain when scores are computed again and stay on the "
        "chip, and what does it cost to sum dq in a fixed order?",
    .limit = Limit::tensor_flops,
    // 16 heads of 128 dimensions, 8192 tokens, causal: 687 GFLOP.
    .axes =
        {{"head_dim", {128, 64}}, {"causal", {1}}, {"heads", {16}}, {"kv_heads", {16}}, {"tokens", {8192}}},
    .quick = {{"tokens", {4096}}},
    // Sizes around blocks of 64 and 128 rows, and groups of 4 query heads.
    .check_at = {{"head_dim", {64, 128}},
                 {"causal", {0, 1}},
                 {"heads", {4}},
                 {"kv_heads", {1}},
                 {"tokens", {0, 1, 64, 65, 211}}},
    .variants =
        {
            {.id         = "scores_in_memory",
             .techniques = {},
             .idea = "the formula: five cuBLAS products a head, with all weights in memory between them",
             .prediction = predict::share(0.08),
             .prepare    = prepared_on_gpu(scores_in_memory)},
            {.id         = "recomputed",
             .launch     = on_gpu(recomputed),
             .techniques = {"tensor_cores", "async_copy", "double_buffering", "flash_attention"},
             .idea       = "a CTA owns 64 keys and computes scores again for each block of queries; mma.sync",
             .prediction = predict::ratio(2.5)},
            {.id         = "atomic_dq",
             .launch     = on_gpu(atomic_dq),
             .techniques = {"flash_attention", "warp_specialization", "tma_pipeline"},
             .idea       = "a CTA owns 128 keys, computes scores again, and adds to dq by atomics",
             .prediction = predict::share_at_least(0.45),
             .kind       = Kind::engine,
             .op         = "kernels/attention/flash_attention_backward.cu",
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "deterministic_dq",
             .launch     = on_gpu(deterministic_dq),
             .techniques = {"flash_attention", "warp_specialization", "tma_pipeline"},
             .idea       = "dq by a kernel of its own, whose CTAs own queries: scores twice, no atomics",
             .prediction = predict::share_at_least(0.35),
             .kind       = Kind::engine,
             .op         = "kernels/attention/flash_attention_backward.cu",
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "cudnn",
             .idea       = "cuDNN's fused backward pass, by its graph interface",
             .prediction = predict::share(0.5),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cudnn_backward)},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-003"},
    .group   = "attention",
};
FATHOM_REGISTER(gradients);

}  // namespace fathom::lab::attention_backward_gpu
