#include <cmath>

#include "core/expect.h"
#include "kernels/norm/rmsnorm.h"

namespace fathom::kernels {

void rmsnorm_reference(View<const float, 2> x, View<const float, 1> weight, double eps, View<float, 2> y,
                       const Execution&) {
  FATHOM_EXPECT(y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1) && weight.extent(0) == x.extent(1),
                "rmsnorm: x and y are [T, H], weight [H]");
  const int64_t width = x.extent(1);
  for (int64_t t = 0; t < x.extent(0); ++t) {
    double squares = 0;
    for (int64_t h = 0; h < width; ++h) squares += static_cast<double>(x(t, h)) * x(t, h);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (int64_t h = 0; h < width; ++h) y(t, h) = static_cast<float>(x(t, h) * scale * weight(h));
  }
}

}  // namespace fathom::kernels
