#include "core/expect.h"
#include "kernels/gemm/linear.h"

namespace fathom::kernels {

void linear_reference(View<const float, 2> x, View<const bf16, 2> w, View<const bf16, 1> bias, Output output,
                      View<float, 2> y, const Execution&) {
  FATHOM_EXPECT(x.extent(1) == w.extent(1) && y.extent(0) == x.extent(0) && y.extent(1) == w.extent(0),
                "linear: x is [T, K], w [N, K], y [T, N]");
  FATHOM_EXPECT(!bias.data() || bias.extent(0) == w.extent(0), "linear: bias is [N] or empty");
  for (int64_t t = 0; t < y.extent(0); ++t)
    for (int64_t n = 0; n < y.extent(1); ++n) {
      double sum = bias.data() ? static_cast<float>(bias(n)) : 0.0;
      for (int64_t k = 0; k < x.extent(1); ++k)
        sum += static_cast<double>(x(t, k)) * static_cast<float>(w(n, k));
      y(t, n) = static_cast<float>(output == Output::add ? y(t, n) + sum : sum);
    }
}

}  // namespace fathom::kernels
