// A transpose reads rows and writes columns. Through shared memory both sides become rows, but then the
// columns are shared memory's, and a column of a 32 x 32 tile lies in one of its 32 banks.
#include "lab/experiment.h"

#include "transpose.h"

namespace fathom::lab::transpose_gpu {

Transpose::Transpose(const Point& at, Arena& arena)
    : in(arena.input<float>({at["n"], at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"], at["n"]})) {
  FATHOM_EXPECT(at["n"] <= 46340, "elements are counted in 32 bits");
}

Cost Transpose::cost() const { return {.read = in.bytes(), .written = out.bytes()}; }

double Transpose::expected(int64_t i, int64_t j) const { return in(j, i); }

namespace {

const Experiment<Transpose> transpose{
    .question =
        "How near to a copy can a transpose come, and what does a 32-way bank conflict cost on the way?",
    .limit = Limit::memory,
    // 16000: rows whose starts are not a power of two apart.
    .axes     = {{"n", {16384, 16000}}},
    .check_at = {{"n", {0, 1, 3, 4, 31, 32, 33, 61, 63, 64, 65, 68, 127, 128, 129, 251, 260, 1028}}},
    .variants =
        {
            {.id         = "naive",
             .launch     = on_gpu(naive),
             .techniques = {},
             .idea       = "reads rows; each lane writes to another row",
             .prediction = predict::share(0.3)},
            {.id         = "tile",
             .launch     = on_gpu(tile),
             .techniques = {"coalescing", "tiling_in_shared_memory"},
             .idea       = "tile[32][32]: rows on both sides, and a column of the tile in one bank",
             .prediction = predict::share(0.45)},
            {.id         = "padded",
             .launch     = on_gpu(padded),
             .techniques = {"coalescing", "tiling_in_shared_memory", "bank_conflict_avoidance"},
             .idea       = "tile[32][33]: a spare column",
             .prediction = predict::share(0.85)},
            {.id         = "swizzled",
             .launch     = on_gpu(swizzled),
             .techniques = {"coalescing", "tiling_in_shared_memory", "swizzling"},
             .idea       = "tile[row][column ^ row]: no conflicts and nothing spare",
             .prediction = predict::share(0.85)},
            {.id         = "vectorized",
             .launch     = on_gpu(vectorized),
             .techniques = {"coalescing", "tiling_in_shared_memory", "swizzling", "vectorization"},
             .idea       = "64 x 64 tiles, 4 x 4 blocks turned in registers, 16 bytes an access everywhere",
             .prediction = predict::share_at_least(0.9)},
            {.id         = "square_order",
             .launch     = on_gpu(square_order),
             .techniques = {"coalescing", "tiling_in_shared_memory", "swizzling", "vectorization",
                            "access_order"},
             .idea       = "the tiles in flight at any moment form a square: long runs of DRAM on both sides",
             .prediction = predict::share_at_least(0.92)},
            {.id         = "cublas_geam",
             .idea       = "cublasSgeam, alpha = 1, beta = 0",
             .prediction = predict::share(0.8),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cublas_geam)},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-010"},
    .group   = "transpose",
};
FATHOM_REGISTER(transpose);

}  // namespace
}  // namespace fathom::lab::transpose_gpu
