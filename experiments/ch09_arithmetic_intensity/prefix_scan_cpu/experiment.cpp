// Every element of a running sum waits for the one before it. Associativity cuts the chain twice, in the
// registers of a core and between threads; each cut costs additions that the chain does not need.
#include "lab/experiment.h"
#include "scan.h"

namespace fathom::lab::prefix_scan_cpu {

const Experiment<Scan> scan{
    .question = "What does a running sum gain from vectors and from a second thread, and what ends the gain?",
    .limit    = Limit::memory,
    // 2^24: 128 MiB, in DRAM. 2^18: 2 MiB, in L3. 2^14: 128 KiB, in L2.
    .axes     = {{"n", {1 << 24, 1 << 18, 1 << 14}}},
    .check_at = {{"n", {0,  1,  2,  7,  8,  9,  15,  16,   17,   31,   33,    47,
                        48, 49, 61, 63, 64, 65, 127, 8191, 8192, 8193, 24575, 24577}}},
    .variants =
        {
            {.id         = "serial",
             .launch     = serial,
             .techniques = {},
             .idea       = "one running sum: an addition's latency for each element",
             .prediction = predict::share(0.16)},
            {.id         = "simd",
             .launch     = simd,
             .techniques = {"simd"},
             .idea       = "eight elements scanned in a register; one addition from vector to vector",
             .prediction = predict::ratio(4)},
            {.id         = "two_pass",
             .launch     = two_pass,
             .techniques = {"simd", "thread_parallel_loops"},
             .idea       = "all threads: add up the parts, scan the sums, then scan the parts",
             .prediction = predict::ratio(4),
             .threads    = kAllThreads},
            {.id         = "one_pass",
             .launch     = one_pass,
             .techniques = {"simd", "thread_parallel_loops", "multi_level_tiling"},
             .idea       = "both passes over a block that stays in L2; sums are handed from block to block",
             .prediction = predict::ratio(4.4),
             .threads    = kAllThreads},
            {.id         = "streamed",
             .launch     = streamed,
             .techniques = {"simd", "thread_parallel_loops", "multi_level_tiling", "cache_hints"},
             .idea       = "one_pass, and the result is written past the caches",
             .prediction = predict::share_at_least(0.9),
             .threads    = kAllThreads},
            {.id         = "inclusive_scan",
             .launch     = inclusive_scan,
             .idea       = "std::inclusive_scan of libstdc++, without a policy",
             .prediction = predict::ratio(1),
             .kind       = Kind::library},
        },
    .catalog = {"book-010"},
};
FATHOM_REGISTER(scan);

}  // namespace fathom::lab::prefix_scan_cpu
