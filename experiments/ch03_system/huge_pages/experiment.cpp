// Before a load can miss the cache its address must be translated. The TLB knows a few thousand pages: 8 MiB
// of small ones, all of an array of huge ones. Beyond that, every random access is two waits instead of one.
#include "lab/experiment.h"
#include "huge_pages.h"

namespace fathom::lab::huge_pages {

const Experiment<LongWalk> long_walk{
    .question =
        "What does address translation cost random access to a large array, and what do huge pages return?",
    // A call meets the same 8 MiB of 64 each time, and caches keep some: no measured latency fits (notes.md).
    .limit    = Limit::none,
    .axes     = {{"bytes", {64 << 20, 4 << 20}}, {"steps", {131072}}},
    .check_at = {{"bytes", {0, 64, 2 * 64, 61 * 64, (2 << 20) - 64, 2 << 20, (2 << 20) + 64}},
                 {"steps", {0, 1, 1009}}},
    .variants =
        {
            {.id         = "small_pages",
             .launch     = small_pages,
             .techniques = {},
             .idea       = "4 KiB pages: a walk of the page tables for nearly every load",
             .prediction = predict::nothing()},
            {.id         = "huge_pages",
             .launch     = huge_pages,
             .techniques = {"huge_pages"},
             .idea       = "2 MiB pages by madvise: the TLB covers the array",
             .prediction = predict::ratio(1.3),
             .needs      = {machine::Feature::transparent_huge_pages}},
        },
    .catalog = {"system-005"},
};
FATHOM_REGISTER(long_walk);

}  // namespace fathom::lab::huge_pages
