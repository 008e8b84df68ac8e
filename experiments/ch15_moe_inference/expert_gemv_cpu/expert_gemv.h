// The problem: one token through its 4 experts, gpt-oss's layer (kernels/moe/experts.h has the formula),
// weights in MXFP4: 4-bit numbers, 32 to a scale.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dtype.h"
#include "core/mxfp4_nvfp4.h"
#include "kernels/moe/experts.h"
#include "lab/problem.h"

namespace fathom::lab::expert_gemv_cpu {

inline constexpr int64_t kExperts = 4;  // of the one token; a model has more, which are not read
inline constexpr float kLimit = 7, kAlpha = 1.702f;
inline constexpr int kMaxThreads = 128;  // the scratch serves so many

struct ExpertGemv {
  View<const float, 2> x;                    // 1 x width
  View<const int32_t, 2> experts;            // 1 x kExperts, all different
  View<const float, 2> weights;              // 1 x kExperts
  kernels::Mxfp4Matrices mlp1, mlp2;         // 2 width and width outputs of each expert, of width inputs
  View<const bf16, 2> mlp1_bias, mlp2_bias;  // kExperts x 2 width, x width
  View<float, 2> out;                        // 1 x width
  View<float, 1> row;                        // workspace: width
  View<float, 1> units, activations;         // workspace: 2 width, width
  View<float, 1> scratch;                    // workspace of kernels::experts_cpu

  ExpertGemv(const Point& at, Arena& arena) : ExpertGemv(at["width"], arena) {}

  int64_t width() const { return x.extent(1); }

  Cost cost() const {
    const int64_t numbers = kExperts * 3 * width() * width();
    return {.read    = numbers / 2 + numbers / kMxfp4Block + kExperts * 3 * width() * 2 + x.bytes(),
            .written = out.bytes(),
            .flops   = 2.0 * static_cast<double>(numbers)};
  }

  void check(Checker& checker) const {
    std::vector<Activation> of[kExperts];  // computed when the first element is asked for
    checker.values("out", out, [&](int64_t, int64_t h) {
      // Errors of activations are independent: their squares add up.
      Sum sum{.length = 2 * width()};
      double brought = 0;
      for (int64_t k = 0; k < kExperts; ++k) {
        if (of[k].empty()) of[k] = activations_of(experts(0, k));
        const auto row    = row_of(mlp2, experts(0, k), h);
        const double bias = static_cast<float>(mlp2_bias(experts(0, k), h)), weight = weights(0, k);
        sum.value += weight * bias;
        sum.magnitude += weight * std::abs(bias);
        for (size_t i = 0; i < row.size(); ++i) {
          sum.value += weight * row[i] * of[k][i].value;
          sum.magnitude += weight * std::abs(row[i] * of[k][i].value);
          brought += std::pow(weight * row[i] * of[k][i].magnitude, 2);
        }
      }
      sum.magnitude += std::sqrt(brought);
      return sum;
    });
  }

 private:
  struct Activation {
    double value, magnitude;
  };

  ExpertGemv(int64_t width, Arena& arena)
      : x(arena.input<float>({1, width}, Normal{})),
        experts(arena.input<int32_t>(
            {1, kExperts}, generate<int32_t>([](int32_t* to, int64_t n, uint64_t seed) {
              for (int64_t k = 0; k < n; ++k)
                to[k] = static_cast<int32_t>((seed + static_cast<uint64_t>(3 * k)) % kExperts);
            }))),
        weights(arena.input<float>({1, kExperts}, Uniform{0.1, 0.4})),
        mlp1(matrices(2 * width, width, arena)),
        mlp2(matrices(width, width, arena)),
        mlp1_bias(arena.input<bf16>({kExperts, 2 * width}, Normal{})),
        mlp2_bias(arena.input<bf16>({kExperts, width}, Normal{})),
        out(arena.output<float>({1, width})),
        row(arena.workspace<float>({width})),
        units(arena.workspace<float>({2 * width})),
        activations(arena.workspace<float>({width})),
        scratch(arena.workspace<float>(
            {kernels::experts_cpu_scratch_bytes(1, kExperts, kExperts, width, width, kMaxThreads) / 4})) {}

  // Scales from 2^-7 to 2^-5: units come out around the limit of 7 at the model's width.
  static kernels::Mxfp4Matrices matrices(int64_t outputs, int64_t inputs, Arena& arena) {
    const int64_t groups = inputs / kMxfp4Block;
    return {.blocks = arena.input<uint8_t>({kExperts, outputs, groups, kMxfp4Block / 2}, Uniform{0, 256}),
            .scales = arena.input<uint8_t>({kExperts, outputs, groups}, Uniform{120, 123})};
  }

  static std::vector<double> row_of(const kernels::Mxfp4Matrices& w, int64_t expert, int64_t output) {
    static constexpr double kValues[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
    const int64_t groups = w.scales.extent(2), bytes = kMxfp4Block / 2;
    std::vector<double> row(static_cast<size_t>(groups * kMxfp4Block));
    for (int64_t g = 0; g < groups; ++g) {
      const double scale  = static_cast<float>(e8m0::from_bits(w.scales(expert, output, g)));
      const uint8_t* from = &w.blocks(expert, output, g, 0);
      double* to          = &row[static_cast<size_t>(g * kMxfp4Block)];
      for (int64_t b = 0; b < bytes; ++b) {
        to[2 * b]     = kValues[from[b] & 15] * scale;
        to[2 * b + 1] = kValues[from[b] >> 4] * scale;
      }
    }
    return row;
  }

  std::vector<Activation> activations_of(int64_t expert) const {
    const auto unit = [&](int64_t output) {
      const auto row    = row_of(mlp1, expert, output);
      const double bias = static_cast<float>(mlp1_bias(expert, output));
      Activation u{bias, std::abs(bias)};
      for (int64_t i = 0; i < width(); ++i) {
        const double product = row[static_cast<size_t>(i)] * x(0, i);
        u.value += product;
        u.magnitude += std::abs(product);
      }
      return u;
    };
    std::vector<Activation> result;
    for (int64_t i = 0; i < width(); ++i) {
      const Activation gate = unit(2 * i), up = unit(2 * i + 1);
      const double g = std::min<double>(gate.value, kLimit),
                   l = std::clamp<double>(up.value, -kLimit, kLimit) + 1;
      const double s = g / (1 + std::exp(-kAlpha * g));
      // |d(g sigmoid(alpha g)) / dg| <= 1.1, and the exponential errs by the rounding of its argument.
      result.push_back({s * l, std::abs(s * l) * (1 + std::abs(kAlpha * g)) +
                                   1.1 * std::abs(l) * gate.magnitude + std::abs(s) * up.magnitude});
    }
    return result;
  }
};

void row_at_a_time(const ExpertGemv&, Context&);
void fused(const ExpertGemv&, Context&);

}  // namespace fathom::lab::expert_gemv_cpu
