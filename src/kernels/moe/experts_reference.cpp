#include <algorithm>
#include <cmath>
#include <vector>

#include "core/expect.h"
#include "core/mxfp4_nvfp4.h"
#include "kernels/moe/experts.h"

namespace fathom::kernels {
namespace {

// Row `out` of expert e, as numbers.
void row_of(const ExpertMatrices& matrices, int64_t e, int64_t out, std::vector<float>& row) {
  if (const auto* packed = std::get_if<Mxfp4Matrices>(&matrices)) {
    const auto groups = static_cast<size_t>(packed->scales.extent(2));
    row.resize(groups * kMxfp4Block);
    decode_mxfp4({&packed->blocks(e, out, 0, 0), groups * 16}, {&packed->scales(e, out, 0), groups}, row);
    return;
  }
  const auto& plain = std::get<View<const bf16, 3>>(matrices);
  row.resize(static_cast<size_t>(plain.extent(2)));
  for (int64_t i = 0; i < plain.extent(2); ++i)
    row[static_cast<size_t>(i)] = static_cast<float>(plain(e, out, i));
}

double dot(const std::vector<float>& row, const std::vector<double>& x) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += row[i] * x[i];
  return sum;
}

}  // namespace

void experts_reference(View<const float, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                       const ExpertWeights& w, View<float, 2> y, const Execution&) {
  const int64_t hidden = x.extent(1), intermediate = w.mlp1_bias.extent(1) / 2;
  FATHOM_EXPECT(y.extent(0) == x.extent(0) && y.extent(1) == hidden && w.mlp2_bias.extent(1) == hidden &&
                    experts.extent(0) == x.extent(0) && weights.extent(0) == x.extent(0) &&
                    weights.extent(1) == experts.extent(1),
                "experts: x and y are [T, H], experts and weights [T, top_k], biases [E, 2I] and [E, H]");
  std::vector<double> in(static_cast<size_t>(hidden)), activation(static_cast<size_t>(intermediate));
  std::vector<float> row;
  for (int64_t t = 0; t < x.extent(0); ++t)
    for (int64_t k = 0; k < experts.extent(1); ++k) {
      const int64_t e = experts(t, k);
      if (e == kNoExpert) continue;
      FATHOM_EXPECT(e >= 0 && e < w.mlp1_bias.extent(0), "experts: there is no such expert");
      for (int64_t h = 0; h < hidden; ++h) in[static_cast<size_t>(h)] = x(t, h);
      const auto unit = [&](int64_t out) {
        row_of(w.mlp1, e, out, row);
        return dot(row, in) + static_cast<float>(w.mlp1_bias(e, out));
      };
      for (int64_t i = 0; i < intermediate; ++i) {
        const double gate                  = std::min<double>(unit(2 * i), w.limit);
        const double up                    = std::clamp<double>(unit(2 * i + 1), -w.limit, w.limit);
        activation[static_cast<size_t>(i)] = gate / (1 + std::exp(-w.alpha * gate)) * (up + 1);
      }
      for (int64_t h = 0; h < hidden; ++h) {
        row_of(w.mlp2, e, h, row);
        y(t, h) += static_cast<float>(weights(t, k) *
                                      (dot(row, activation) + static_cast<float>(w.mlp2_bias(e, h))));
      }
    }
}

}  // namespace fathom::kernels
