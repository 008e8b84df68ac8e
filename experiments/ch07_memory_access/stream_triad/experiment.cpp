// A store changes a part of a line, so a cache fetches the line before it takes the store. The triad names 24
// bytes an element and moves 32, unless its stores go past the caches.
#include "lab/experiment.h"
#include "triad.h"

namespace fathom::lab::stream_triad {

const Experiment<Triad> triad{
    .question = "Which bytes does a triad move, and where is it better not to fetch what is overwritten?",
    .limit    = Limit::memory,
    // 2^23: 192 MiB, in DRAM. 2^17: 3 MiB, in L3. 2^13: 192 KiB, in L2.
    .axes     = {{"n", {1 << 23, 1 << 17, 1 << 13}}},
    .check_at = {{"n", {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 61, 1009}}},
    .variants =
        {
            {.id         = "plain",
             .launch     = plain,
             .techniques = {},
             .idea       = "the loop: lines of a are fetched, then overwritten",
             .prediction = predict::share(0.75)},
            {.id         = "streamed",
             .launch     = streamed,
             .techniques = {"cache_hints"},
             .idea       = "the same loop with non-temporal stores",
             .prediction = predict::ratio(1.33)},
            {.id         = "plain_threads",
             .launch     = plain_threads,
             .techniques = {"thread_count"},
             .idea       = "plain on all threads",
             .prediction = predict::share(0.75),
             .threads    = kAllThreads},
            {.id         = "streamed_threads",
             .launch     = streamed_threads,
             .techniques = {"cache_hints", "thread_count"},
             .idea       = "streamed on all threads",
             .prediction = predict::share_at_least(0.95),
             .threads    = kAllThreads},
        },
    .catalog = {"book-006"},
};
FATHOM_REGISTER(triad);

}  // namespace fathom::lab::stream_triad
