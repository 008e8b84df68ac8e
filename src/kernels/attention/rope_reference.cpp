#include <cmath>

#include "core/expect.h"
#include "kernels/attention/rope.h"

namespace fathom::kernels {

void rope_table_reference(View<const int32_t, 1> positions, View<const float, 1> frequencies,
                          float concentration, View<float, 2> table, const Execution&) {
  const int64_t half = frequencies.extent(0);
  FATHOM_EXPECT(table.extent(0) == positions.extent(0) && table.extent(1) == 2 * half,
                "rope_table: table is [T, Dh], frequencies [Dh / 2]");
  for (int64_t t = 0; t < positions.extent(0); ++t)
    for (int64_t k = 0; k < half; ++k) {
      const float angle  = static_cast<float>(positions(t)) * frequencies(k);
      table(t, k)        = concentration * std::cos(angle);
      table(t, half + k) = concentration * std::sin(angle);
    }
}

void rope_reference(View<float, 3> x, View<const float, 2> table, const Execution&) {
  const int64_t half = x.extent(2) / 2;
  FATHOM_EXPECT(x.extent(2) == 2 * half && table.extent(0) == x.extent(0) && table.extent(1) == x.extent(2),
                "rope: x is [T, heads, Dh] with an even Dh, table [T, Dh]");
  for (int64_t t = 0; t < x.extent(0); ++t)
    for (int64_t head = 0; head < x.extent(1); ++head)
      for (int64_t k = 0; k < half; ++k) {
        const double a = x(t, head, k), b = x(t, head, half + k);
        const double cos = table(t, k), sin = table(t, half + k);
        x(t, head, k)        = static_cast<float>(a * cos - b * sin);
        x(t, head, half + k) = static_cast<float>(b * cos + a * sin);
      }
}

}  // namespace fathom::kernels
