// A decode step reads the weights of a token's experts once, at 4.25 bits each. Can a CPU unpack them as fast
// as memory delivers them?
#include "lab/experiment.h"
#include "expert_gemv.h"

namespace fathom::lab::expert_gemv_cpu {

const Experiment<ExpertGemv> expert_gemv{
    .question = "What does it take to multiply 4-bit weights as fast as memory delivers them?",
    .limit    = Limit::memory,
    // gpt-oss: 53 MB of weights for the 4 experts of a token.
    .axes     = {{"width", {2880}}},
    .check_at = {{"width", {0, 32, 64, 96, 128, 160, 416}}},
    .variants =
        {
            {.id         = "row_at_a_time",
             .launch     = row_at_a_time,
             .techniques = {},
             .idea       = "dequantizes a row into a buffer in L1, and multiplies it there",
             .prediction = predict::share(0.045)},
            {.id         = "fused",
             .launch     = fused,
             .techniques = {"kernel_fusion", "simd", "register_blocking", "layout_change",
                            "software_prefetch"},
             .idea = "the engine's op: dequantizes by a table look-up in registers, and multiplies there",
             .prediction = predict::ratio_at_least(10),
             .kind       = Kind::engine,
             .op         = "kernels/moe/experts_cpu.cpp"},
            {.id         = "threads",
             .launch     = fused,
             .techniques = {"kernel_fusion", "simd", "register_blocking", "layout_change",
                            "software_prefetch", "work_queue", "thread_parallel_loops"},
             .idea       = "fused, outputs from a queue on all threads",
             .prediction = predict::share_at_least(0.75),
             .kind       = Kind::engine,
             .op         = "kernels/moe/experts_cpu.cpp",
             .threads    = kAllThreads},
        },
    .catalog = {"quant-013"},
    .group   = "expert_gemv",
};
FATHOM_REGISTER(expert_gemv);

}  // namespace fathom::lab::expert_gemv_cpu
