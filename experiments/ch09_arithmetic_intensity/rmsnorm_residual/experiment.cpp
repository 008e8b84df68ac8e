// Every layer of a transformer adds its input to the residual stream and normalises the sum. The addition is
// one flop for 6 bytes; the norm that follows has the sum in its registers anyway.
#include "lab/experiment.h"

#include <cmath>
#include <vector>

#include "residual.h"

namespace fathom::lab::rmsnorm_residual {

Residual::Residual(const Point& at, Arena& arena)
    : x(arena.input<bf16>({at["tokens"], at["dim"]}, Normal{})),
      residual(arena.input<bf16>({at["tokens"], at["dim"]}, Normal{})),
      weight(arena.input<bf16>({at["dim"]}, Uniform{0.5, 1.5})),
      sum(arena.output<bf16>({at["tokens"], at["dim"]})),
      y(arena.output<bf16>({at["tokens"], at["dim"]})) {}

// For each element: an addition, a multiply-add into the sum of squares, two multiplications.
Cost Residual::cost() const {
  return {.read    = x.bytes() + residual.bytes() + weight.bytes(),
          .written = sum.bytes() + y.bytes(),
          .flops   = 5.0 * static_cast<double>(x.size())};
}

void Residual::check(Checker& checker) const {
  // Two bf16 added in fp32 and rounded once more: every implementation gets the same bits.
  const auto added = [&](int64_t t, int64_t d) -> double {
    return static_cast<float>(bf16(static_cast<float>(x(t, d)) + static_cast<float>(residual(t, d))));
  };
  checker.values("sum", sum, added);
  const int64_t dim = x.extent(1);
  std::vector<double> scales(static_cast<size_t>(x.extent(0)), 0);  // 0: not computed yet
  checker.values("y", y, [&](int64_t t, int64_t d) {
    double& row = scales[static_cast<size_t>(t)];
    if (row == 0) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i) squares += added(t, i) * added(t, i);
      row = 1 / std::sqrt(squares / static_cast<double>(dim) + kEpsilon);
    }
    const double value = added(t, d) * row * static_cast<float>(weight(d));
    // All terms of the sum of squares are positive, so its error is relative; six roundings surround it: the
    // square, the mean, epsilon, the reciprocal root, two multiplications.
    return Sum{.value = value, .magnitude = std::abs(value), .length = dim + 6};
  });
}

const Experiment<Residual> rmsnorm_residual{
    .question = "What does the residual addition cost when RMSNorm does it while loading?",
    .limit    = Limit::memory,
    // 8192: 537 MB cross memory. 2880: a row of gpt-oss.
    .axes     = {{"dim", {8192, 2880}}, {"tokens", {8192}}},
    .check_at = {{"dim", {1, 7, 8, 9, 61, 248, 1000, 1024, 1032, 2880, 4097, 4104, 8192, 8200, 16392, 32776}},
                 {"tokens", {0, 1, 7, 9}}},
    .variants =
        {
            {.id         = "two_kernels",
             .launch     = on_gpu(two_kernels),
             .techniques = {},
             .idea       = "an addition, 16 bytes a load; then the best RMSNorm of fused_rmsnorm_gpu",
             .prediction = predict::share(0.73)},
            {.id         = "fused",
             .launch     = on_gpu(fused),
             .techniques = {"kernel_fusion", "register_blocking", "cache_hints"},
             .idea       = "the sum is written and normalised from the same registers",
             .prediction = predict::share_at_least(0.88)},
        },
    .backend = Backend::cuda,
    .group   = "rmsnorm",
};
FATHOM_REGISTER(rmsnorm_residual);

}  // namespace fathom::lab::rmsnorm_residual
