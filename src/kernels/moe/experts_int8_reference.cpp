#include <algorithm>
#include <cmath>
#include <vector>

#include "core/expect.h"
#include "core/mxfp4_nvfp4.h"
#include "kernels/gemm/int8_row_reference.h"
#include "kernels/moe/experts_int8.h"

namespace fathom::kernels {
namespace {

// E2M1 numbers, doubled.
constexpr int kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Products of a block are exact in integers, sums of blocks are in double.
double dot(const Mxfp4Matrices& w, int64_t e, int64_t out, const Int8Row& x) {
  double sum = 0;
  for (int64_t g = 0; g < w.scales.extent(2); ++g) {
    int products = 0;
    for (int64_t i = 0; i < kMxfp4Block; ++i) {
      const uint8_t two = w.blocks(e, out, g, i / 2);
      products +=
          kTwice[i % 2 == 0 ? two & 15 : two >> 4] * x.values[static_cast<size_t>(g * kMxfp4Block + i)];
    }
    sum += products * 0.5 * x.scales[static_cast<size_t>(g)] * std::ldexp(1.0, w.scales(e, out, g) - 127);
  }
  return sum;
}

}  // namespace

void experts_int8_reference(View<const float, 2> x, View<const int32_t, 2> experts,
                            View<const float, 2> weights, const ExpertWeights& w, View<float, 2> y,
                            const Execution&) {
  const int64_t hidden = x.extent(1), intermediate = w.mlp1_bias.extent(1) / 2;
  FATHOM_EXPECT(y.extent(0) == x.extent(0) && y.extent(1) == hidden && w.mlp2_bias.extent(1) == hidden &&
                    experts.extent(0) == x.extent(0) && weights.extent(0) == x.extent(0) &&
                    weights.extent(1) == experts.extent(1),
                "experts: x and y are [T, H], experts and weights [T, top_k], biases [E, 2I] and [E, H]");
  const auto *mlp1 = std::get_if<Mxfp4Matrices>(&w.mlp1), *mlp2 = std::get_if<Mxfp4Matrices>(&w.mlp2);
  FATHOM_EXPECT(mlp1 && mlp2 && hidden % kMxfp4Block == 0 && intermediate % kMxfp4Block == 0,
                "experts: activations in int8 go with weights in MXFP4, in whole blocks");
  std::vector<float> in(static_cast<size_t>(hidden)), activation(static_cast<size_t>(intermediate));
  for (int64_t t = 0; t < x.extent(0); ++t) {
    for (int64_t h = 0; h < hidden; ++h) in[static_cast<size_t>(h)] = x(t, h);
    const Int8Row in_int8(in);
    for (int64_t k = 0; k < experts.extent(1); ++k) {
      const int64_t e = experts(t, k);
      if (e == kNoExpert) continue;
      FATHOM_EXPECT(e >= 0 && e < w.mlp1_bias.extent(0), "experts: there is no such expert");
      const auto unit = [&](int64_t out) {
        return dot(*mlp1, e, out, in_int8) + static_cast<float>(w.mlp1_bias(e, out));
      };
      for (int64_t i = 0; i < intermediate; ++i) {
        const double gate = std::min<double>(unit(2 * i), w.limit);
        const double up   = std::clamp<double>(unit(2 * i + 1), -w.limit, w.limit);
        activation[static_cast<size_t>(i)] =
            static_cast<float>(gate / (1 + std::exp(-w.alpha * gate)) * (up + 1));
      }
      const Int8Row activation_int8(activation);
      for (int64_t h = 0; h < hidden; ++h)
        y(t, h) += static_cast<float>(
            weights(t, k) * (dot(*mlp2, e, h, activation_int8) + static_cast<float>(w.mlp2_bias(e, h))));
    }
  }
}

}  // namespace fathom::kernels
