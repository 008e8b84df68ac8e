// Attention over a sequence on several ranks needs keys and values of all of them. Under a causal mask the
// rank of the last tokens also has the most work.
#include "lab/experiment.h"
#include "ring_attention.h"

namespace fathom::lab::ring_attention_cpu {

const Experiment<RingAttention> ring_attention_cpu{
    .question =
        "Does a ring save time over gathering all keys and values, and what does a balanced order of chunks "
        "save under a causal mask?",
    .limit    = Limit::flops,
    .axes     = {{"tokens", {1024, 4096}}},
    .check_at = {{"tokens", {0, 1, 2, 3, 5, 127, 509, 1031}}},
    .variants =
        {
            {.id         = "all_gather",
             .techniques = {"context_parallel"},
             .idea       = "gather all keys and values, then attend",
             .prediction = predict::nothing(),
             .prepare    = all_gather},
            {.id         = "ring",
             .techniques = {"context_parallel", "online_softmax", "kv_transfer"},
             .idea       = "keys and values go round; a rank holds two blocks of them at most",
             .prediction = predict::ratio(1.0),
             .prepare    = ring},
            {.id         = "zigzag",
             .techniques = {"context_parallel", "online_softmax", "kv_transfer", "load_balancing"},
             .idea       = "a ring in which each rank has an early and a late chunk: even work",
             .prediction = predict::ratio_at_least(1.2),
             .prepare    = zigzag},
        },
    .catalog = {"attention-006", "distributed-014"},
    .ranks   = kRanks,
};
FATHOM_REGISTER(ring_attention_cpu);

}  // namespace fathom::lab::ring_attention_cpu
