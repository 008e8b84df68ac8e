// Each element of the two inputs is used n times. The three-line kernel loads it n times, and no cache
// delivers two loads for each multiply-add. How many loads does a tile in shared memory save, and what limits
// the kernel then?
#include "lab/experiment.h"

#include <cmath>

#include "library.h"
#include "matmul.h"

namespace fathom::lab::matmul_tiled {

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

const Experiment<Matmul> matmul{
    .question = "What does a tile in shared memory save a matrix product, and what limits it then?",
    .limit    = Limit::flops,
    .axes     = {{"n", {4096, 1024}}},
    .check_at = {{"n", {0, 1, 7, 31, 32, 33, 67, 128, 257}}},
    .variants = {{.id         = "naive",
                  .launch     = on_gpu(naive),
                  .techniques = {},
                  .idea       = "a thread for each element of the result: a row of a times a column of b",
                  .prediction = predict::share(0.08)},
                 {.id         = "tiled",
                  .launch     = on_gpu(tiled),
                  .techniques = {"tiling_in_shared_memory"},
                  .idea       = "a block takes 32 x 32 tiles of both into shared memory",
                  .prediction = predict::ratio(2)},
                 {.id         = "cublas",
                  .idea       = "cublasSgemm",
                  .prediction = predict::share_at_least(0.75),
                  .kind       = Kind::library,
                  .prepare    = prepared_on_gpu(library)}},
    .backend  = Backend::cuda,
    .catalog  = {"tiling-001"},
    .group    = "matmul",
};
FATHOM_REGISTER(matmul);

}  // namespace
}  // namespace fathom::lab::matmul_tiled
