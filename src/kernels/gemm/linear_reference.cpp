#include "core/expect.h"
#include "kernels/gemm/linear.h"

namespace fathom::kernels {

void linear_reference(View<const float, 2> x, const DenseMatrix& w, View<const bf16, 1> bias, Output output,
                      View<float, 2> y, const Execution&) {
  FATHOM_EXPECT(x.extent(1) == columns_of(w) && y.extent(0) == x.extent(0) && y.extent(1) == rows_of(w),
                "linear: x is [T, K], w [N, K], y [T, N]");
  FATHOM_EXPECT(!bias.data() || bias.extent(0) == rows_of(w), "linear: bias is [N] or empty");
  std::visit(
      [&](const auto& matrix) {
        for (int64_t t = 0; t < y.extent(0); ++t)
          for (int64_t n = 0; n < y.extent(1); ++n) {
            double sum = bias.data() ? static_cast<float>(bias(n)) : 0.0;
            for (int64_t k = 0; k < x.extent(1); ++k)
              sum += static_cast<double>(x(t, k)) * weight_at(matrix, n, k);
            y(t, n) = static_cast<float>(output == Output::add ? y(t, n) + sum : sum);
          }
      },
      w);
}

}  // namespace fathom::kernels
