// Seven products of blocks do the work of eight, and a search finds how. The product that is saved costs n^3
// operations, the additions that replace it n^2: from which size do they pay?
#include "lab/experiment.h"
#include "product.h"

namespace fathom::lab::bilinear_discovery {

const Experiment<Product> product{
    .question = "From which size do seven block products that a search finds beat the library's one call?",
    .limit    = Limit::flops,
    // At 4096 a call takes a second: with two variants there are rounds enough for an interval.
    .axes = {{"n", {1024, 2048, 4096, 512}}},
    // Odd at the first level, at the second, at both; and sizes without a level.
    .check_at = {{"n", {0, 1, 2, 3, 6, 7, 14, 65, 66, 131}}},
    .variants =
        {
            {.id         = "library",
             .techniques = {},
             .idea       = "one call of dnnl_sgemm",
             .prediction = predict::share_at_least(0.65),
             .prepare    = library,
             .library    = "libdnnl.so.2"},
            {.id         = "schoolbook_blocks",
             .techniques = {"multi_level_tiling"},
             .idea       = "eight calls, one for each product of blocks",
             .prediction = predict::ratio(1),
             .prepare    = schoolbook_blocks,
             .library    = "libdnnl.so.2",
             .up_to      = {{"n", 2048}}},
            {.id         = "discovered",
             .techniques = {"algorithm_discovery"},
             .idea       = "seven calls and 18 additions of blocks, by the scheme that a search found",
             .prediction = predict::ratio_at_least(1),
             .prepare    = discovered,
             .library    = "libdnnl.so.2"},
            {.id         = "discovered_twice",
             .techniques = {"algorithm_discovery"},
             .idea       = "49 calls: the same scheme again in each of the seven",
             .prediction = predict::ratio_at_least(1.05),
             .prepare    = discovered_twice,
             .library    = "libdnnl.so.2",
             .up_to      = {{"n", 2048}}},
        },
    .clock   = Clock::cpu,
    .catalog = {"ai-assist-005"},
    .group   = "matmul",
};
FATHOM_REGISTER(product);

}  // namespace fathom::lab::bilinear_discovery
