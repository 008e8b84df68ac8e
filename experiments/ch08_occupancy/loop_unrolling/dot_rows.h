// The problem: out(i) = sum over k of a(i, k) x(k), fp32: the dot product of every row with one vector.
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

namespace fathom::lab::loop_unrolling {

struct DotRows {
  View<const float, 2> a;
  View<const float, 1> x;
  View<float, 1> out;

  DotRows(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void plain(const DotRows& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void rolled(const DotRows& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void unrolled_4(const DotRows& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void unrolled_8(const DotRows& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void accumulators_4(const DotRows& p, StreamRef stream);

}  // namespace fathom::lab::loop_unrolling
