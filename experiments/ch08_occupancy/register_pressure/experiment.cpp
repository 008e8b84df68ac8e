// Registers are the fastest memory, but a thread has at most 255 of them; the compiler spills the rest to
// local memory, one instruction for every store and load.
#include <array>
#include <cmath>
#include <unordered_map>

#include "cholesky.h"
#include "lab/experiment.h"

namespace fathom::lab::register_pressure {

Cholesky::Cholesky(const Point& at, Arena& arena)
    : in(arena.input<float>({kElements, at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({kElements, at["n"]})) {}

Cost Cholesky::cost() const {
  // A multiplication and an addition for every i >= j > k, a multiplication for every i >= j.
  const double fmas = kOrder * (kOrder * kOrder - 1) / 6.0;
  return {.read    = in.bytes(),
          .written = out.bytes(),
          .flops   = (2 * fmas + kElements) * static_cast<double>(in.extent(1))};
}

void Cholesky::check(Checker& checker) const {
  using Triangle    = std::array<Sum, kElements>;
  const auto factor = [this](int64_t b) {
    Triangle l;
    for (int i = 0; i < kOrder; ++i)
      for (int j = 0; j <= i; ++j) {
        double value     = static_cast<double>(in(element(i, j), b)) + (i == j ? kRidge : 0);
        double magnitude = std::abs(value);
        for (int k = 0; k < j; ++k) {
          const double product = l[element(i, k)].value * l[element(j, k)].value;
          value -= product;
          magnitude += std::abs(product);
        }
        const double divisor = i == j ? std::sqrt(value) : l[element(j, j)].value;
        // The subtractions, the root and the scaling by it.
        l[element(i, j)] = {.value = value / divisor, .magnitude = magnitude / divisor, .length = kOrder + 2};
      }
    return l;
  };
  std::unordered_map<int64_t, Triangle> factors;  // the factor of a matrix is needed up to 300 times
  checker.values("out", out, [&](int64_t e, int64_t b) {
    const auto found = factors.find(b);
    return (found != factors.end() ? found : factors.emplace(b, factor(b)).first)
        ->second[static_cast<size_t>(e)];
  });
}

const Experiment<Cholesky> cholesky{
    .question =
        "What does it cost when a thread's working set exceeds its registers, and how can it be made to fit?",
    .limit    = Limit::memory,
    .axes     = {{"n", {262144}}},
    .check_at = {{"n", {0, 1, 2, 31, 32, 33, 127, 128, 129, 257}}},
    .variants =
        {
            {.id         = "whole_matrix",
             .launch     = on_gpu(whole_matrix),
             .techniques = {},
             .idea       = "a thread holds all 300 elements: 255 registers and spills",
             .prediction = predict::share(0.5)},
            {.id         = "by_columns",
             .launch     = on_gpu(by_columns),
             .techniques = {"register_pressure"},
             .idea       = "the same operations in an order in which 200 are enough",
             .prediction = predict::ratio_at_least(1.2)},
            {.id         = "four_warps",
             .launch     = on_gpu(four_warps),
             .techniques = {"register_pressure", "launch_bounds", "shared_memory"},
             .idea       = "four threads share a matrix, 84 elements each; 16 warps resident",
             .prediction = predict::share_at_least(0.8)},
            {.id         = "eight_warps",
             .launch     = on_gpu(eight_warps),
             .techniques = {"register_pressure", "launch_bounds", "shared_memory", "occupancy_tuning"},
             .idea       = "eight threads share a matrix, 48 elements each; 24 warps resident",
             .prediction = predict::share_at_least(0.8)},
        },
    .backend = Backend::cuda,
    .catalog = {"occupancy-006"},
};
FATHOM_REGISTER(cholesky);

}  // namespace fathom::lab::register_pressure
