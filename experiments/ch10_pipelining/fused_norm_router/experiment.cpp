// Before a layer's experts come RMSNorm, a small product and top-4: three kernels, each waiting for the one
// before, and the second reads what the first wrote. What does one fused kernel gain?
#include "lab/experiment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/rng.h"
#include "routing.h"

namespace fathom::lab::fused_norm_router {
namespace {

// Inputs for which rounding cannot change the chosen experts. (With random ones some of 4096 rows have two
// logits so close that the order of summation decides.) A row's mean square is a power of 4: each four
// numbers are a power of 2 with signs, or one is twice that and the others 0. So y is exact, and so are its
// products with multiples of 2^-10 and their sums.
auto rows_of(int64_t width) {
  return generate<float>([width](float* x, int64_t n, uint64_t seed) {
    std::vector<uint8_t> random(static_cast<size_t>(n / 4));
    fill_integers(random.data(), n / 4, seed, 0, 256);
    for (int64_t i = 0; i < n; i += 4) {
      const uint64_t row = static_cast<uint64_t>(i / width) + seed;
      const float size   = static_cast<float>(1 << row % 5);
      const int bits     = random[static_cast<size_t>(i / 4)];
      for (int j = 0; j < 4; ++j) {
        const float sign = bits >> j & 1 ? -1.0f : 1.0f;
        const bool one = bits >> 4 & 1;  // only one of the four is not 0: the one that the highest bits name
        x[i + j]       = !one ? sign * size : bits >> 6 == j ? sign * 2 * size : 0.0f;
      }
    }
  });
}

auto powers_of_two(int min, int max) {
  return generate<float>([=](float* out, int64_t n, uint64_t seed) {
    std::vector<int32_t> exponents(static_cast<size_t>(n));
    fill_integers(exponents.data(), n, seed, min, max + 1);
    for (int64_t i = 0; i < n; ++i) out[i] = std::ldexp(1.0f, exponents[static_cast<size_t>(i)]);
  });
}

// k 2^exponent, k from -64 to 64.
template <class T>
auto multiples_of(int exponent) {
  return generate<T>([=](T* out, int64_t n, uint64_t seed) {
    std::vector<int8_t> times(static_cast<size_t>(n));
    fill_integers(times.data(), n, seed, -64, 65);
    for (int64_t i = 0; i < n; ++i)
      out[i] = T(std::ldexp(static_cast<float>(times[static_cast<size_t>(i)]), exponent));
  });
}

}  // namespace

Routing::Routing(const Point& at, Arena& arena)
    : rows(at["rows"]),
      width(at["width"]),
      x(arena.input<float>({rows, width}, rows_of(width))),
      norm(arena.input<float>({width}, powers_of_two(-1, 1))),
      router(arena.input<bf16>({kExperts, width}, multiples_of<bf16>(-10))),
      bias(arena.input<float>({kExperts}, multiples_of<float>(-6))),
      positions(arena.input<int32_t>({rows}, Uniform{0, 4096})),
      y(arena.output<bf16>({rows, width})),
      experts(arena.output<int32_t>({rows, kChosen})),
      weights(arena.output<float>({rows, kChosen})),
      logits(arena.workspace<float>({rows, kExperts})),
      scratch(arena.workspace<uint8_t>({int64_t{32} << 20})) {
  FATHOM_EXPECT(width > 0 && width % 16 == 0 && width <= kMaxWidth, "rows are multiples of 16, at most 3072");
}

Cost Routing::cost() const {
  return {.read      = x.bytes() + norm.bytes() + router.bytes() + bias.bytes(),
          .written   = y.bytes() + experts.bytes() + weights.bytes(),
          .flops     = 2.0 * static_cast<double>(kExperts * x.size()),
          .flop_type = DType::bf16};
}

void Routing::check(Checker& checker) const {
  const auto scale_of = [this](int64_t t) {
    double squares = 0;
    for (int64_t h = 0; h < width; ++h) squares += static_cast<double>(x(t, h)) * x(t, h);
    return 1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(kEpsilon));
  };
  std::vector<double> scales(static_cast<size_t>(rows), 0);  // 0: not computed yet
  // The reference is rounded to bf16, as y is.
  const auto normed = [&](int64_t t, int64_t h) {
    double& scale = scales[static_cast<size_t>(t)];
    if (scale == 0) scale = scale_of(t);
    return static_cast<double>(x(t, h)) * scale * norm(h);
  };
  checker.values("y", y, normed);

  struct Chosen {
    std::array<int64_t, kChosen> experts;
    std::array<double, kChosen> logits;
    bool known = false;
  };
  std::vector<Chosen> rows_chosen(static_cast<size_t>(rows));
  const auto chosen = [&](int64_t t) -> const Chosen& {
    Chosen& row = rows_chosen[static_cast<size_t>(t)];
    if (row.known) return row;
    std::array<double, kExperts> of_row;
    for (int64_t e = 0; e < kExperts; ++e) {
      double& sum = of_row[static_cast<size_t>(e)] = bias(e);
      for (int64_t h = 0; h < width; ++h)
        sum += static_cast<double>(static_cast<float>(bf16(static_cast<float>(normed(t, h))))) *
               static_cast<float>(router(e, h));
    }
    std::array<int64_t, kExperts> order;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return of_row[static_cast<size_t>(a)] > of_row[static_cast<size_t>(b)];
    });
    for (size_t k = 0; k < kChosen; ++k) {
      row.experts[k] = order[k];
      row.logits[k]  = of_row[static_cast<size_t>(order[k])];
    }
    row.known = true;
    return row;
  };
  checker.values("experts", experts,
                 [&](int64_t t, int64_t k) -> int64_t { return chosen(t).experts[static_cast<size_t>(k)]; });
  checker.values("weights", weights, [&](int64_t t, int64_t k) {
    const auto& of_row = chosen(t).logits;
    double total       = 0;
    for (const double logit : of_row) total += std::exp(logit - of_row[0]);
    const double weight = std::exp(of_row[static_cast<size_t>(k)] - of_row[0]) / total;
    // Two roundings of each exponential, three of their sum, and one of the quotient.
    return Sum{.value = weight, .magnitude = weight, .length = 8};
  });
}

const Experiment<Routing> routing{
    .question =
        "RMSNorm, router and top-4 of 32 experts: how much time does one kernel save over three, at 1, 64 "
        "and 4096 rows?",
    .limit = Limit::memory,
    // 2880: gpt-oss-20b.
    .axes     = {{"rows", {4096, 64, 1}}, {"width", {2880}}},
    .check_at = {{"rows", {0, 1, 2, 15, 17, 130}}, {"width", {16, 48, 1024, 2880, 3072}}},
    .variants =
        {
            {.id         = "separate",
             .techniques = {"tensor_cores"},
             .idea       = "RMSNorm, cublasLtMatmul, top-4, one after the other",
             .prediction = predict::nothing(),
             .prepare    = prepared_on_gpu(separate)},
            {.id         = "fused",
             .launch     = on_gpu(fused),
             .techniques = {"tensor_cores", "kernel_fusion", "clusters", "dsmem"},
             .idea       = "the engine's op: one kernel, rows stay in registers, clusters exchange sums",
             .prediction = predict::ratio_at_least(1.4),
             .kind       = Kind::engine,
             .op         = "kernels/moe/rmsnorm_router.cu",
             .needs      = {machine::Feature::clusters}},
        },
    .backend = Backend::cuda,
};
FATHOM_REGISTER(routing);

}  // namespace fathom::lab::fused_norm_router
