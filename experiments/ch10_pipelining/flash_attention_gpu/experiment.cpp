// The formula of attention writes and reads T^2 scores a head for T outputs. What does a GPU gain when scores
// never leave the registers, and when the tensor cores do not wait for the exponentials?
#include "lab/experiment.h"
#include "attention.h"
#include "cudnn_attention.h"
#include "flash.h"
#include "flash_attention_3.h"
#include "warpgroups.h"

namespace fathom::lab::flash_attention_gpu {

const Experiment<PromptAttention> prompt_attention{
    .question =
        "What does attention over a prompt gain on a GPU when scores stay in registers, and when the tensor "
        "cores do not wait for the exponentials?",
    .limit = Limit::tensor_flops,
    // 2048 tokens: 34 GFLOP, and 1.1 GB of scores. 8192: 550 GFLOP. With a window the limit is another one:
    // window_attention_gpu.
    .axes = {{"window", {0}}, {"tokens", {2048, 8192}}},
    // Sizes around pages and tiles (64), and windows that begin anywhere in a page.
    .check_at = {{"window", {0, 1, 64, 100}}, {"tokens", {0, 1, 2, 63, 64, 65, 127, 129, 200}}},
    .variants =
        {
            {.id         = "scores_in_memory",
             .techniques = {},
             .idea       = "the formula: two cuBLAS products, all scores in memory between them",
             .prediction = predict::share(0.05),
             .prepare    = prepared_on_gpu(scores_in_memory),
             .up_to      = {{"tokens", kMaxScoredTokens}}},
            {.id         = "flash",
             .launch     = on_gpu(flash),
             .techniques = {"online_softmax", "tensor_cores", "async_copy", "double_buffering",
                            "flash_attention"},
             .idea = "a CTA has 64 rows of a head and walks over the pages in reach; scores in registers; "
                     "mma.sync",
             .prediction = predict::ratio(5.5)},
            {.id         = "wgmma",
             .launch     = on_gpu(wgmma),
             .techniques = {"online_softmax", "tensor_cores", "async_copy", "double_buffering",
                            "flash_attention"},
             .idea       = "a warpgroup multiplies; the tensor cores read keys and values from shared memory",
             .prediction = predict::ratio(7),
             .needs      = {machine::Feature::wgmma}},
            {.id         = "tma_ring",
             .launch     = on_gpu(tma_ring),
             .techniques = {"online_softmax", "tensor_cores", "tma_pipeline", "multi_stage_pipeline",
                            "completion_tokens", "warp_specialization", "flash_attention"},
             .idea       = "a producer warp loads pages by TMA into a ring of mbarrier stages",
             .prediction = predict::ratio(7.3),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "shared_pages",
             .launch     = on_gpu(shared_pages),
             .techniques = {"online_softmax", "tensor_cores", "tma_pipeline", "multi_stage_pipeline",
                            "completion_tokens", "register_blocking", "flash_attention"},
             .idea       = "a CTA has 4 heads of a group: one load of a page serves 4 warpgroups",
             .prediction = predict::ratio(7.6),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "overlapped",
             .launch     = on_gpu(overlapped),
             .techniques = {"online_softmax", "tensor_cores", "tma_pipeline", "multi_stage_pipeline",
                            "completion_tokens", "register_blocking", "flash_attention"},
             .idea       = "exponentials of this page while the tensor cores add the last page's values",
             .prediction = predict::ratio(8),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "unified_max",
             .launch     = on_gpu(unified_max),
             .techniques = {"online_softmax", "tensor_cores", "tma_pipeline", "multi_stage_pipeline",
                            "completion_tokens", "register_blocking", "flash_attention"},
             .idea       = "weights relative to the sink: no maximum, and rescaling only before overflow",
             .prediction = predict::ratio(9),
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id         = "warpgroups",
             .launch     = on_gpu(warpgroups),
             .techniques = {"online_softmax", "tensor_cores", "multi_stage_pipeline", "completion_tokens",
                            "flash_attention"},
             .idea =
                 "the engine's op: as unified_max; warps take turns loading, CTAs of 2 or 4 heads, FP8 pages",
             .prediction = predict::share_at_least(0.45),
             .kind       = Kind::engine,
             .op         = "kernels/attention/prefill_attention.cu",
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id   = "cudnn",
             .idea = "cuDNN's fused attention with sinks; keys and values gathered from their pages first",
             .prediction = predict::ratio(8.8),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cudnn_attention)},
            {.id   = "flash_attention_3",
             .idea = "FlashAttention 3 as vLLM carries it; keys and values gathered from their pages first",
             .prediction = predict::ratio(6.5),
             .kind       = Kind::library,
             .needs      = {machine::Feature::tma, machine::Feature::wgmma},
             .python     = {.script = "flash_attention_3.py", .arguments = flash_attention_3}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-001", "attention-002", "attention-003", "attention-005"},
    .group   = "attention",
};
FATHOM_REGISTER(prompt_attention);

}  // namespace fathom::lab::flash_attention_gpu
