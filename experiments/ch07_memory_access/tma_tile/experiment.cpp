// A kernel that copies a tile of a matrix computes an address for each row and checks bounds for each vector.
// A tensor map tells TMA the shape once; then a tile is one instruction with two coordinates, and elements
// outside are zeros. Does it cost bandwidth?
#include "lab/experiment.h"

#include "pad.h"

namespace fathom::lab::tma_tile {
namespace {

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// rows x columns in rows that begin at multiples of 16 bytes.
View<const float, 2> padded_input(int64_t rows, int64_t columns, Arena& arena) {
  const int64_t pitch = rounded_up(columns, 4);
  return {arena.input<float>({rows, pitch}, Uniform{-1, 1}).data(), {rows, columns}, {pitch, 1}};
}

}  // namespace

Pad::Pad(const Point& at, Arena& arena)
    : in(padded_input(at["rows"], at["columns"], arena)),
      out(arena.output<float>({rounded_up(at["rows"], kTile), rounded_up(at["columns"], kTile)})) {}

Cost Pad::cost() const { return {.read = in.bytes(), .written = out.bytes()}; }

double Pad::expected(int64_t i, int64_t j) const {
  return i < in.extent(0) && j < in.extent(1) ? in(i, j) : 0;
}

namespace {

const Experiment<Pad> pad{
    .question = "Can TMA load tiles of a matrix, edges included, at the rate of a plain copy?",
    .limit    = Limit::memory,
    // 1.1 GB read, 1.1 GB written; 8 short of whole tiles.
    .axes = {{"rows", {16632}}, {"columns", {16632}}},
    // 4100 x 2003: eight boxes for each block, so that the ring wraps.
    .check_at = {{"rows", {0, 1, 31, 33, 129, 4100}}, {"columns", {0, 1, 3, 127, 128, 131, 2003}}},
    .variants = {{.id         = "vectors",
                  .launch     = on_gpu(vectors),
                  .techniques = {},
                  .idea       = "every thread copies four vectors of 16 bytes and checks bounds",
                  .prediction = predict::share_at_least(0.93)},
                 {.id         = "tensor_map",
                  .launch     = on_gpu(tensor_map_copy),
                  .techniques = {"tma"},
                  .idea = "one thread of a block sends boxes of 32 x 128 through a ring in shared memory",
                  .prediction = predict::share_at_least(0.92),
                  .needs      = {machine::Feature::tma}},
                 {.id         = "memcpy_2d",
                  .launch     = on_gpu(memcpy_2d),
                  .idea       = "cudaMemcpy2DAsync, and memsets for the border",
                  .prediction = predict::share(0.9),
                  .kind       = Kind::library}},
    .backend  = Backend::cuda,
    .catalog  = {"memory-012"},
};
FATHOM_REGISTER(pad);

}  // namespace
}  // namespace fathom::lab::tma_tile
