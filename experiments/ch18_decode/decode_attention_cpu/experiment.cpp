// A decode step reads the whole cache for one token. What does it take to read it once, at memory's
// bandwidth?
#include "lab/experiment.h"
#include "attention.h"

namespace fathom::lab::decode_attention_cpu {

const Experiment<DecodeAttention> decode_attention{
    .question =
        "With 8 query heads to a key-value head, what does a decode step gain when they share reads, and "
        "when "
        "scores stay in L1?",
    .limit = Limit::memory,
    // 4096 positions have 16.8 MB of keys and values, 32768 have 134 MB.
    .axes = {{"context", {32768, 4096}}},
    // Sizes around pages (64), and 0.
    .check_at = {{"context", {0, 1, 2, 61, 63, 64, 65, 127, 128, 129, 300}}},
    .variants =
        {
            {.id         = "head_by_head",
             .launch     = head_by_head,
             .techniques = {},
             .idea       = "a head at a time: scores, softmax, values",
             .prediction = predict::share(0.15)},
            {.id         = "group_by_group",
             .launch     = group_by_group,
             .techniques = {"register_blocking"},
             .idea       = "a key is scored for its 8 query heads while it is in registers or L1",
             .prediction = predict::ratio(1.5)},
            {.id         = "blocks",
             .launch     = blocks,
             .techniques = {"simd", "register_blocking", "online_softmax", "paged_kv"},
             .idea       = "the engine's op: online softmax over blocks of positions, lanes are heads",
             .prediction = predict::share_at_least(0.6),
             .kind       = Kind::engine,
             .op         = "kernels/attention/attention_cpu.cpp"},
            {.id         = "threads",
             .launch     = blocks,
             .techniques = {"simd", "register_blocking", "online_softmax", "paged_kv",
                            "thread_parallel_loops"},
             .idea       = "blocks, key-value heads on all threads",
             .prediction = predict::share_at_least(0.8),
             .kind       = Kind::engine,
             .op         = "kernels/attention/attention_cpu.cpp",
             .threads    = kAllThreads},
        },
    .catalog = {"attention-015"},
    .group   = "decode_attention",
};
FATHOM_REGISTER(decode_attention);

}  // namespace fathom::lab::decode_attention_cpu
