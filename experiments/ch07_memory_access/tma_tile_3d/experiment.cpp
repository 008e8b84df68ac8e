// A tile at the end of a sequence has rows outside of it, and what lies there is the next sequence. A tensor
// map with the batch as an axis of its own makes them zeros. What do the other ways cost?
#include "lab/experiment.h"

#include "sequences.h"

namespace fathom::lab::tma_tile_3d {
namespace {

int64_t whole_tiles(int64_t tokens) { return (tokens + kRows - 1) / kRows * kRows; }

}  // namespace

Sequences::Sequences(const Point& at, Arena& arena)
    : in(arena.input<float>({at["sequences"], at["tokens"], at["numbers"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["sequences"], whole_tiles(at["tokens"]), kColumns})) {
  FATHOM_EXPECT(at["numbers"] > 0 && at["numbers"] <= kColumns && at["numbers"] % 4 == 0,
                "a row must be a multiple of 16 bytes, and at most a tile wide");
}

Cost Sequences::cost() const { return {.read = in.bytes(), .written = out.bytes()}; }

double Sequences::expected(int64_t b, int64_t i, int64_t j) const {
  return i < in.extent(1) && j < in.extent(2) ? in(b, i, j) : 0;
}

namespace {

const Experiment<Sequences> sequences{
    .question =
        "What does a 3-D tensor map save over a 2-D one and over bulk copies, where tiles end with their "
        "sequence?",
    .limit = Limit::memory,
    // 0.25 GB read, 0.27 GB written; the last tile of a sequence has 8 rows inside, and rows end 8 short of
    // it.
    .axes = {{"sequences", {512}}, {"tokens", {1000}}, {"numbers", {120}}},
    // 7 x 2003 are 441 tiles, more than blocks; 64 x 1000 make the ring wrap.
    .check_at = {{"sequences", {0, 1, 7, 64}},
                 {"tokens", {0, 1, 31, 32, 33, 1000, 2003}},
                 {"numbers", {4, 60, 128}}},
    .variants = {{.id         = "bulk_rows",
                  .launch     = on_gpu(bulk_rows),
                  .techniques = {"tma"},
                  .idea       = "a bulk copy for each row; the kernel zeroes both edges",
                  .prediction = predict::share(0.75),
                  .needs      = {machine::Feature::tma}},
                 {.id         = "map_2d",
                  .launch     = on_gpu(map_2d),
                  .techniques = {"tma"},
                  .idea       = "a tensor map of all rows; the kernel zeroes rows of the next sequence",
                  .prediction = predict::share_at_least(0.85),
                  .needs      = {machine::Feature::tma}},
                 {.id         = "map_3d",
                  .launch     = on_gpu(map_3d),
                  .techniques = {"tma"},
                  .idea       = "the sequence is an axis of the map: TMA fills in both edges",
                  .prediction = predict::share_at_least(0.85),
                  .needs      = {machine::Feature::tma}}},
    .backend  = Backend::cuda,
    .catalog  = {"memory-012"},
};
FATHOM_REGISTER(sequences);

}  // namespace
}  // namespace fathom::lab::tma_tile_3d
