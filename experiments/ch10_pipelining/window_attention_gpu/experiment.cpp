// Every other layer of gpt-oss lets a token see the last 128 positions only. That leaves few products for
// each byte of q and out: memory is the limit now, not the tensor cores.
#include "lab/experiment.h"
#include "banded.h"
#include "experiments/ch10_pipelining/flash_attention_gpu/flash.h"
#include "experiments/ch10_pipelining/flash_attention_gpu/flash_attention_3.h"
#include "experiments/ch10_pipelining/flash_attention_gpu/warpgroups.h"

namespace fathom::lab::window_attention_gpu {

using flash_attention_gpu::PromptAttention;

const Experiment<PromptAttention> window_attention{
    .question =
        "With a window of 128 positions, what do attention kernels made for long prompts gain over a plain "
        "loop over the band?",
    .limit = Limit::memory,
    // 38 and 151 MB of q, out, keys and values.
    .axes = {{"window", {128}}, {"tokens", {2048, 8192}}},
    // Windows that begin anywhere in a page, sizes around pages and tiles (64) and the baseline's 16 tokens.
    .check_at = {{"window", {1, 64, 100, 128}}, {"tokens", {0, 1, 2, 15, 17, 63, 64, 65, 127, 129, 200}}},
    .variants =
        {
            {.id         = "banded",
             .launch     = on_gpu(banded),
             .techniques = {},
             .idea       = "a thread for each row; the band of keys and values in shared memory; CUDA cores",
             .prediction = predict::share(0.04)},
            {.id         = "flash",
             .launch     = on_gpu(flash_attention_gpu::flash),
             .techniques = {"online_softmax", "tensor_cores", "async_copy", "double_buffering",
                            "flash_attention"},
             .idea       = "a CTA has 64 rows of a head and walks over the 3 pages in reach; mma.sync",
             .prediction = predict::share(0.2)},
            {.id         = "warpgroups",
             .launch     = on_gpu(flash_attention_gpu::warpgroups),
             .techniques = {"online_softmax", "tensor_cores", "multi_stage_pipeline", "completion_tokens",
                            "flash_attention"},
             .idea       = "the engine's op: wgmma, TMA, a page loaded once for 2 or 4 heads",
             .prediction = predict::share_at_least(0.32),
             .kind       = Kind::engine,
             .op         = "kernels/attention/prefill_attention.cu",
             .needs      = {machine::Feature::tma, machine::Feature::wgmma}},
            {.id   = "flash_attention_3",
             .idea = "FlashAttention 3 as vLLM carries it; keys and values gathered from their pages first",
             .prediction = predict::share(0.2),
             .kind       = Kind::library,
             .needs      = {machine::Feature::tma, machine::Feature::wgmma},
             .python     = {.script    = "../flash_attention_gpu/flash_attention_3.py",
                            .arguments = flash_attention_gpu::flash_attention_3}},
        },
    .backend = Backend::cuda,
    .catalog = {"attention-005"},
    .group   = "attention",
};
FATHOM_REGISTER(window_attention);

}  // namespace fathom::lab::window_attention_gpu
