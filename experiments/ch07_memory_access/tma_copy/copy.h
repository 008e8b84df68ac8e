// out(i) = in(i), fp32.
#pragma once

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::tma_copy {

struct Copy {
  View<const float, 1> in;
  View<float, 1> out;

  Copy(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void vectors(const Copy& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void bulk(const Copy& p, StreamRef stream);

}  // namespace fathom::lab::tma_copy
