#include "core/expect.h"
#include "kernels/gemm/sgemm.h"

namespace fathom::kernels {

void sgemm_reference(View<const float, 2> a, View<const float, 2> b, Output output, View<float, 2> c,
                     const Execution&) {
  FATHOM_EXPECT(a.extent(1) == b.extent(0) && c.extent(0) == a.extent(0) && c.extent(1) == b.extent(1),
                "sgemm: a is [M, K], b [K, N], c [M, N]");
  for (int64_t m = 0; m < c.extent(0); ++m)
    for (int64_t n = 0; n < c.extent(1); ++n) {
      double sum = 0;
      for (int64_t k = 0; k < a.extent(1); ++k) sum += static_cast<double>(a(m, k)) * b(k, n);
      c(m, n) = static_cast<float>(output == Output::add ? c(m, n) + sum : sum);
    }
}

}  // namespace fathom::kernels
