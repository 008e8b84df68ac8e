#include <vector>

#include "core/expect.h"
#include "kernels/gemm/int8_row_reference.h"
#include "kernels/gemm/linear_int8.h"

namespace fathom::kernels {

// Products of a group are exact in integers, sums of groups are in double.
void linear_int8_reference(View<const float, 2> x, const Int8Weights& w, View<const bf16, 1> bias,
                           Output output, View<float, 2> y, const Execution&) {
  const int64_t depth = x.extent(1), outputs = y.extent(1);
  FATHOM_EXPECT(w.values.extent(1) == depth && y.extent(0) == x.extent(0) && w.values.extent(0) == outputs &&
                    w.scales.extent(0) == outputs && w.scales.extent(1) == int8_groups(depth),
                "linear: x is [T, K], w [N, K] with a scale for each group of 32, y [T, N]");
  FATHOM_EXPECT(!bias.data() || bias.extent(0) == outputs, "linear: bias is [N] or empty");
  std::vector<float> in(static_cast<size_t>(depth));
  for (int64_t t = 0; t < y.extent(0); ++t) {
    for (int64_t k = 0; k < depth; ++k) in[static_cast<size_t>(k)] = x(t, k);
    const Int8Row row(in);
    for (int64_t n = 0; n < outputs; ++n) {
      double sum = bias.data() ? static_cast<float>(bias(n)) : 0.0;
      for (int64_t g = 0; g < w.scales.extent(1); ++g) {
        int products = 0;
        for (int64_t k = g * kInt8Group; k < std::min((g + 1) * kInt8Group, depth); ++k)
          products += w.values(n, k) * row.values[static_cast<size_t>(k)];
        sum += static_cast<double>(products) * row.scales[static_cast<size_t>(g)] *
               static_cast<float>(w.scales(n, g));
      }
      y(t, n) = static_cast<float>(output == Output::add ? y(t, n) + sum : sum);
    }
  }
}

}  // namespace fathom::kernels
