// The problem: a filter for each of n channels, samples of all channels side by side: y(t, c) is x(t, c)
// after four recursive sections in a row, fp32. Section s makes of its input v(t), with coefficients of its
// own and nothing before t = 0,
//   w(t) = b0 v(t) + b1 v(t - 1) + b2 v(t - 2) + a1 w(t - 1) + a2 w(t - 2)
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
struct Sum;
}  // namespace fathom::lab

namespace fathom::lab::launch_bounds {

inline constexpr int kSections = 4;

struct FilterBank {
  View<const float, 2> in;
  View<const float, 2> coefficient;  // (5 s + q, c): b0, b1, b2, a1, a2 of section s
  View<float, 2> out;

  FilterBank(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t t, int64_t c) const;
};

FATHOM_CUDA_LAUNCHER void unbounded(const FilterBank& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void bounded(const FilterBank& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void prefetched(const FilterBank& p, StreamRef stream);

}  // namespace fathom::lab::launch_bounds
