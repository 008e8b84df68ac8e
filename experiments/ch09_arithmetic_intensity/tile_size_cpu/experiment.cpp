// The larger the tiles of a matrix product, the fewer words come into the cache, until the tiles no longer
// fit into it. How wide is the range between, and what does a row length that is a power of two leave of it?
#include "lab/experiment.h"
#include "product.h"

namespace fathom::lab::tile_size_cpu {

const Experiment<Product> product{
    .question =
        "How does the time of a matrix product depend on the size of its tiles, and on the row length?",
    .limit = Limit::flops,
    // Three matrices of 4 MiB: more than L2, and with the three input sets more than L3. Rows of 1040 floats,
    // 65 lines, and of 1024.
    .axes     = {{"n", {1024}}, {"padding", {16, 0}}, {"tile", {64, 8, 16, 32, 128, 256, 512, 1024}}},
    .check_at = {{"n", {0, 1, 7, 8, 9, 16, 31, 63, 64, 65, 97}}, {"padding", {16, 0}}, {"tile", {8, 64}}},
    .variants =
        {
            {.id         = "tiled",
             .launch     = tiled,
             .techniques = {"simd", "register_blocking", "multi_level_tiling"},
             .idea       = "a tile of the result stays while tiles of a and b pass",
             .prediction = predict::share(0.8)},
            {.id         = "copied",
             .launch     = copied,
             .techniques = {"simd", "register_blocking", "multi_level_tiling", "packing"},
             .idea       = "each tile of b is first copied into the order in which it is read",
             .prediction = predict::ratio(1)},
        },
    .clock   = Clock::cpu,
    .catalog = {"book-013"},
    .group   = "matmul",
};
FATHOM_REGISTER(product);

}  // namespace fathom::lab::tile_size_cpu
