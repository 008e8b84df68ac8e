// A tile of T x T in shared memory is read from L2 once and used T times. How large must T be, and what
// limits each size?
#include "lab/experiment.h"

#include <cmath>

#include "matmul.h"

namespace fathom::lab::tile_size {

Matmul::Matmul(const Point& at, Arena& arena)
    : n(at["n"]),
      a(arena.input<float>({n, n}, Uniform{-1, 1})),
      b(arena.input<float>({n, n}, Uniform{-1, 1})),
      out(arena.output<float>({n, n})) {}

Cost Matmul::cost() const {
  return {.read    = a.bytes() + b.bytes(),
          .written = out.bytes(),
          .flops   = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n)};
}

Sum Matmul::expected(int64_t i, int64_t j) const {
  Sum sum{.length = n};
  for (int64_t k = 0; k < n; ++k) {
    const double product = static_cast<double>(a(i, k)) * b(k, j);
    sum.value += product;
    sum.magnitude += std::abs(product);
  }
  return sum;
}

namespace {

const std::vector<std::string> kRegisters = {"tiling_in_shared_memory", "register_blocking"};

const Experiment<Matmul> matmul{
    .question = "How large must the tiles of a matrix product be, and what limits each size?",
    .limit    = Limit::flops,
    .axes     = {{"n", {4096}}},
    .check_at = {{"n", {0, 1, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 257}}},
    .variants = {{.id         = "no_tile",
                  .launch     = on_gpu(no_tile),
                  .techniques = {},
                  .idea       = "a thread for each element; what is used again comes from the caches",
                  .prediction = predict::share(0.09)},
                 {.id         = "tile_16",
                  .launch     = on_gpu(tile_16),
                  .techniques = {"tiling_in_shared_memory"},
                  .idea       = "16 x 16: a sum a thread, 4 flops for each byte of L2",
                  .prediction = predict::ratio(1.1)},
                 {.id         = "tile_32",
                  .launch     = on_gpu(tile_32),
                  .techniques = kRegisters,
                  .idea       = "32 x 32: 2 x 2 sums a thread, 8 flops a byte",
                  .prediction = predict::ratio(2.4)},
                 {.id         = "tile_64",
                  .launch     = on_gpu(tile_64),
                  .techniques = kRegisters,
                  .idea       = "64 x 64: 4 x 4 sums a thread, 16 flops a byte",
                  .prediction = predict::ratio(4.5)},
                 {.id         = "tile_128",
                  .launch     = on_gpu(tile_128),
                  .techniques = kRegisters,
                  .idea       = "128 x 128: 8 x 8 sums a thread, 32 flops a byte",
                  .prediction = predict::ratio(6)}},
    .backend  = Backend::cuda,
    .catalog  = {"tiling-002"},
    .group    = "matmul",
};
FATHOM_REGISTER(matmul);

}  // namespace
}  // namespace fathom::lab::tile_size
