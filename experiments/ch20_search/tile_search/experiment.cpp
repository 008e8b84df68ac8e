// Tiles can be computed from the sizes of the caches, or found by timing. Of 400 combinations a search may
// time 60: is its best one faster than the rule's, and does it matter how the 60 are chosen?
#include "lab/experiment.h"
#include "product.h"

namespace fathom::lab::tile_search {

const Experiment<Product> product{
    .question =
        "With 60 evaluations for 400 combinations of tiles, which strategy beats the rule by cache sizes?",
    .limit = Limit::flops,
    .axes  = {{"n", {512}}},
    // Around the register tile (6 x 16), and beyond the smaller tiles of the space.
    .check_at = {{"n", {0, 1, 5, 7, 15, 17, 65, 131}}},
    .variants =
        {
            {.id         = "rule",
             .techniques = {"simd", "register_blocking", "multi_level_tiling", "packing"},
             .idea       = "tiles by the sizes of the caches",
             .prediction = predict::share(0.75),
             .prepare    = rule},
            {.id         = "grid",
             .techniques = {"simd", "register_blocking", "multi_level_tiling", "packing", "autotuning"},
             .idea       = "the first 60 of the grid, in order",
             .prediction = predict::ratio(0.9),
             .prepare    = grid},
            {.id         = "random",
             .techniques = {"simd", "register_blocking", "multi_level_tiling", "packing", "autotuning"},
             .idea       = "60 at random",
             .prediction = predict::ratio_at_least(0.95),
             .prepare    = random},
            {.id         = "genetic",
             .techniques = {"simd", "register_blocking", "multi_level_tiling", "packing", "autotuning",
                            "evolutionary_search"},
             .idea       = "60 that a genetic algorithm asks for",
             .prediction = predict::ratio_at_least(1),
             .prepare    = genetic},
            {.id         = "tpe",
             .techniques = {"simd", "register_blocking", "multi_level_tiling", "packing", "autotuning",
                            "learned_tuning"},
             .idea       = "60 that a model of the fast ones asks for",
             .prediction = predict::ratio_at_least(1),
             .prepare    = tpe},
            {.id         = "exhaustive",
             .techniques = {"simd", "register_blocking", "multi_level_tiling", "packing", "autotuning"},
             .idea       = "all 400: what there is to find",
             .prediction = predict::ratio_at_least(1),
             .prepare    = exhaustive},
        },
    .clock   = Clock::cpu,
    .catalog = {"ai-assist-003"},
    .group   = "matmul",
};
FATHOM_REGISTER(product);

}  // namespace fathom::lab::tile_search
