// RMSNorm needs a whole row before it can write the first element of it. Reduced in one kernel and scaled in
// another, the matrix comes out of memory twice; a row is small enough to stay on chip in between.
#include "lab/experiment.h"

#include <cmath>
#include <vector>

#include "rmsnorm.h"

namespace fathom::lab::fused_rmsnorm_gpu {

RmsNorm::RmsNorm(const Point& at, Arena& arena)
    : x(arena.input<bf16>({at["tokens"], at["dim"]}, Normal{})),
      weight(arena.input<bf16>({at["dim"]}, Uniform{0.5, 1.5})),
      y(arena.output<bf16>({at["tokens"], at["dim"]})),
      scale(arena.workspace<float>({at["tokens"]})) {}

// For each element: a multiply-add into the sum of squares, two multiplications.
Cost RmsNorm::cost() const {
  return {
      .read = x.bytes() + weight.bytes(), .written = y.bytes(), .flops = 4.0 * static_cast<double>(x.size())};
}

void RmsNorm::check(Checker& checker) const {
  const int64_t dim = x.extent(1);
  std::vector<double> scales(static_cast<size_t>(x.extent(0)), 0);  // 0: not computed yet
  checker.values("y", y, [&](int64_t t, int64_t d) {
    double& row = scales[static_cast<size_t>(t)];
    if (row == 0) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) {
        const double v = static_cast<float>(x(t, i));
        squares += v * v;
      }
      row = 1 / std::sqrt(squares / static_cast<double>(dim) + kEpsilon);
    }
    const double value =
        static_cast<double>(static_cast<float>(x(t, d))) * row * static_cast<float>(weight(d));
    // All terms of the sum of squares are positive, so its error is relative; six roundings surround it: the
    // square, the mean, epsilon, the reciprocal root, two multiplications.
    return Sum{.value = value, .magnitude = std::abs(value), .length = dim + 6};
  });
}

PythonArguments for_python(const RmsNorm& p) {
  return {{"x", p.x}, {"weight", p.weight}, {"y", p.y}, {"epsilon", kEpsilon}};
}

const Experiment<RmsNorm> fused_rmsnorm{
    .question = "How near to the speed of a copy is RMSNorm when a row stays on chip between its two steps?",
    .limit    = Limit::memory,
    // 8192 x 8192: 268 MB cross memory. 2880: a row of gpt-oss. 32768: the longest row that registers hold.
    .axes     = {{"dim", {8192, 2880, 32768}}, {"tokens", {8192}}},
    .check_at = {{"dim",
                  {1, 7, 8, 9, 61, 248, 1000, 1024, 1032, 2880, 4097, 4104, 8192, 8200, 16392, 32767, 32768,
                   32776}},
                 {"tokens", {0, 1, 7, 9}}},
    .variants =
        {
            {.id         = "two_kernels",
             .launch     = on_gpu(two_kernels),
             .techniques = {},
             .idea       = "one kernel reduces each row to its scale, the next one scales",
             .prediction = predict::share(0.62)},
            {.id         = "two_walks",
             .launch     = on_gpu(two_walks),
             .techniques = {"kernel_fusion"},
             .idea       = "one block a row walks over it twice; the second walk hits the caches",
             .prediction = predict::ratio(1.35)},
            {.id         = "registers",
             .launch     = on_gpu(registers),
             .techniques = {"kernel_fusion", "register_blocking", "cache_hints"},
             .idea = "one walk: the block's threads hold the row in registers, all loads in flight at once",
             .prediction = predict::share_at_least(0.88)},
            {.id         = "cudnn",
             .idea       = "cuDNN's normalization forward, mode RMS",
             .prediction = predict::share(0.85),
             .kind       = Kind::library,
             .prepare    = prepared_on_gpu(cudnn)},
            {.id         = "triton",
             .idea       = "Triton, after its tutorial on LayerNorm: a program holds a row; warps tuned",
             .prediction = predict::share(0.86),
             .kind       = Kind::library,
             .python     = {.script = "triton_rmsnorm.py", .arguments = for_python}},
            {.id         = "flashinfer",
             .idea       = "FlashInfer's rmsnorm, as serving engines call it",
             .prediction = predict::share(0.8),
             .kind       = Kind::library,
             .python     = {.script = "flashinfer_rmsnorm.py", .arguments = for_python}},
        },
    .backend = Backend::cuda,
    .group   = "rmsnorm",
};
FATHOM_REGISTER(fused_rmsnorm);

}  // namespace fathom::lab::fused_rmsnorm_gpu
