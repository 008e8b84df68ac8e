// An fp8 matrix product wants its rows in e4m3, each with a scale that takes its largest element to 448. The
// scale needs the largest output of RMSNorm, and RMSNorm needs the row's squares: by the definition, two
// reductions over a row, one after the other.
#include "lab/experiment.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quantize.h"

namespace fathom::lab::rmsnorm_quantize {

Quantize::Quantize(const Point& at, Arena& arena)
    : x(arena.input<bf16>({at["tokens"], at["dim"]}, Normal{})),
      weight(arena.input<bf16>({at["dim"]}, Uniform{0.5, 1.5})),
      q(arena.output<fp8_e4m3>({at["tokens"], at["dim"]})),
      scale(arena.output<float>({at["tokens"]})),
      y(arena.workspace<bf16>({at["tokens"], at["dim"]})) {}

// For each element: a multiply-add into the sum of squares, two multiplications, a comparison, a division.
Cost Quantize::cost() const {
  return {.read    = x.bytes() + weight.bytes(),
          .written = q.bytes() + scale.bytes(),
          .flops   = 6.0 * static_cast<double>(x.size())};
}

void Quantize::check(Checker& checker) const {
  const int64_t dim = x.extent(1);
  struct Row {
    double root = 0, scale = 0;  // 0: not computed yet
  };
  std::vector<Row> rows(static_cast<size_t>(x.extent(0)));
  const auto product = [&](int64_t t, int64_t d) {
    return static_cast<double>(static_cast<float>(x(t, d))) * static_cast<float>(weight(d));
  };
  const auto row_of = [&](int64_t t) {
    Row& row = rows[static_cast<size_t>(t)];
    if (row.scale != 0) return row;
    double squares = 0, largest = 0;
    for (int64_t i = 0; i < dim; ++i) {
      const double v = static_cast<float>(x(t, i));
      squares += v * v;
      largest = std::max(largest, std::abs(product(t, i)));
    }
    row.root  = 1 / std::sqrt(squares / static_cast<double>(dim) + kEpsilon);
    row.scale = std::max<double>(row.root * largest / kLargest, kSmallestScale);
    return row;
  };
  // y may be rounded to bf16 between the two steps, as it is where RMSNorm ends before quantisation begins.
  // The roundings in fp32 are negligible beside that.
  checker.values("scale", scale, [&](int64_t t) {
    const double value = row_of(t).scale;
    return Sum{.value = value, .magnitude = value, .length = 1, .accumulate = DType::bf16};
  });
  checker.values("q", q, [&](int64_t t, int64_t d) {
    const Row row      = row_of(t);
    const double value = product(t, d) * row.root / row.scale;
    // Below the smallest normal number e4m3 has the steps, and so the roundings, that it has there.
    constexpr double kSmallestNormal = 0x1p-6;
    if (std::abs(value) < kSmallestNormal)
      return Sum{.value = value, .magnitude = kSmallestNormal, .length = 1, .accumulate = DType::fp8_e4m3};
    return Sum{.value = value, .magnitude = std::abs(value), .length = 1, .accumulate = DType::bf16};
  });
}

const Experiment<Quantize> rmsnorm_quantize{
    .question = "What does fusing quantisation to e4m3, with a scale for each token, into RMSNorm save?",
    .limit    = Limit::memory,
    // 8192: 805 MB cross memory. 2880: a row of gpt-oss.
    .axes     = {{"dim", {8192, 2880}}, {"tokens", {32768}}},
    .check_at = {{"dim", {1, 7, 8, 9, 61, 248, 1000, 1024, 1032, 2880, 4097, 4104, 8192, 8200, 16392, 32776}},
                 {"tokens", {0, 1, 7, 9}}},
    .variants =
        {
            {.id         = "two_kernels",
             .launch     = on_gpu(two_kernels),
             .techniques = {"mixed_precision"},
             .idea       = "the best RMSNorm of fused_rmsnorm_gpu; then each row is read for its scale and "
                           "again to be scaled",
             .prediction = predict::share(0.39)},
            {.id         = "fused",
             .launch     = on_gpu(fused),
             .techniques = {"mixed_precision", "kernel_fusion", "register_blocking", "cache_hints"},
             .idea       = "the row in registers; the largest |x weight| is found beside the squares, behind "
                           "one barrier",
             .prediction = predict::share_at_least(0.85)},
        },
    .backend = Backend::cuda,
    .group   = "rmsnorm",
};
FATHOM_REGISTER(rmsnorm_quantize);

}  // namespace fathom::lab::rmsnorm_quantize
