// A thread that wakes up on another core has its data in a remote cache, and two threads on one core wait for
// each other while another core idles. Binding threads to CPUs prevents both, but a bound thread cannot move
// away from other work on its CPU.
#include "lab/experiment.h"
#include "thread_pinning.h"

namespace fathom::lab::thread_pinning {

const Experiment<Diffusion> diffusion{
    .question = "What does binding each thread to a CPU gain for work with a barrier every few microseconds?",
    .limit    = Limit::none,
    .axes     = {{"n", {65536, 262144}}, {"steps", {256}}},
    .check_at = {{"n", {0, 1, 2, 3, 7, 61, 255, 256, 257, 511, 512, 513, 1009}}, {"steps", {0, 1, 2, 5}}},
    .variants =
        {
            {.id      = "unpinned",
             .idea    = "threads run where the scheduler puts them",
             .threads = kAllThreads,
             .prepare = prepare_unpinned},
            {.id         = "pinned",
             .launch     = pinned,
             .techniques = {"thread_pinning"},
             .idea       = "one CPU for each thread",
             .prediction = predict::ratio(1.05),
             .threads    = kAllThreads},
        },
    .catalog = {"system-003"},
};
FATHOM_REGISTER(diffusion);

}  // namespace fathom::lab::thread_pinning
