// A decode step reads the whole cache for one token. What does it take to read it once, and as fast as memory
// allows?
#include "attention.h"

namespace fathom::lab::decode_attention_cpu {

const Experiment<DecodeAttention> decode_attention{
    .question =
        "With 8 query heads to a key-value head, what does a decode step gain when they share what they "
        "read, "
        "and when scores never leave L1?",
    .limit = Limit::memory,
    // 4096 positions are 16.8 MB of keys and values, 32768 are 134 MB.
    .axes = {{"context", {32768, 4096}}},
    // Around pages (64), and with none.
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
             .idea       = "a key is scored for its 8 heads while it is at hand",
             .prediction = predict::ratio(1.5)},
            {.id         = "blocks",
             .launch     = blocks,
             .techniques = {"simd", "register_blocking", "online_softmax", "paged_kv"},
             .idea       = "the engine's op: blocks of positions, lanes are heads",
             .prediction = predict::share_at_least(0.6)},
            {.id         = "threads",
             .launch     = blocks,
             .techniques = {"simd", "register_blocking", "online_softmax", "paged_kv",
                            "thread_parallel_loops"},
             .idea       = "blocks, key-value heads on all threads",
             .prediction = predict::share_at_least(0.8),
             .threads    = kAllThreads},
        },
    .catalog = {"attention-015"},
};
FATHOM_REGISTER(decode_attention);

}  // namespace fathom::lab::decode_attention_cpu
